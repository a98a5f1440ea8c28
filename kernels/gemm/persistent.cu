// bf16 GEMM: one block a multiprocessor works through many tiles. The order of tiles keeps what runs at one time in L2, the producer
// already fills the ring for the next tile during the epilogue, and the outputs leave through the copy engine.
// diagnose: expect tensor-compute
#include "tiles.cuh"

constexpr int kStages = 4, kCluster = 2;
using Shared = Layout<kStages, kConsumers * 2 * kChunkBytes>;

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_persistent(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                    const __grid_constant__ CUtensorMap map_c, Order order, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<kStages, kCluster> ring(shared, Shared::barriers);
    int thread = threadIdx.x % 128, steps = k / kK, rank = hopper::cluster_rank();
    int tiles = order.rows * order.columns, clusters = gridDim.x / kCluster;
    if (threadIdx.x == 0) ring.init();
    hopper::cluster_sync();  // the peer's copies count on this block's barriers

    if (threadIdx.x < 128) {
        hopper::registers_give<kProducerRegisters>();
        if (thread == 0) {
            diagnose_timeline::Track track(0, true);
            for (int tile = blockIdx.x / kCluster; tile < tiles; tile += clusters) {
                int row, column;
                order.place(tile, row, column);
                int m0 = (row * kCluster + rank) * kM, n0 = column * kN + rank * (kN / kCluster);
                for (int step = 0; step < steps; ++step) {
                    uint64_t* full = &ring.full[ring.slot];
                    track.begin(Kind::barrier_wait, step);
                    // Empty in both blocks. The peer's half may arrive before this expect: the phase cannot end without it.
                    hopper::barrier_wait(&ring.empty[ring.slot], ring.phase ^ 1);
                    track.begin(Kind::tma_issue, step);
                    hopper::barrier_expect(full, kStageBytes);
                    hopper::tma_load(ring.stage(), &map_a, full, step * kK, m0);
                    hopper::tma_load_multicast(ring.stage() + kBytesA + rank * (kBytesB / kCluster), &map_b, full,
                                               step * kK, n0, (1 << kCluster) - 1);
                    ring.next();
                }
            }
            track.end();
        }
    } else {
        hopper::registers_take<kConsumerRegisters>();
        int group = threadIdx.x / 128 - 1;
        diagnose_timeline::Track track(1 + group, thread == 0);
        uint32_t buffers = ring.stages + Shared::extra + group * 2 * kChunkBytes;
        for (int tile = blockIdx.x / kCluster; tile < tiles; tile += clusters) {
            int row, column;
            order.place(tile, row, column);
            int m0 = (row * kCluster + rank) * kM + group * 64, n0 = column * kN;
            float sum[kN / 2];
            ring.multiply(sum, steps, group, thread, track);
            track.begin(Kind::epilogue, tile);
            store_by_tma<2>(sum, buffers, &map_c, n0, m0, group, thread);
        }
        track.begin(Kind::store_wait);
        if (thread == 0) hopper::tma_store_wait<0>();
        track.end();
    }
    hopper::cluster_sync();  // the peer may still copy into this block and signal its barriers
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    long long band = args.get("band", 8);
    require(band > 0 && band <= 512, "--band must be between 1 and 512");
    diagnose_timeline::start("gemm_persistent", {"producer", "consumer 0", "consumer 1"});
    int code = gemm_program("gemm/persistent", args, kM * kCluster, [=](const Operands& o) {
        allow_shared(gemm_persistent, Shared::bytes);
        CUtensorMap map_a = bf16_map(o.a, o.m, o.k, kM), map_b = bf16_map(o.b, o.n, o.k, kN / kCluster);
        CUtensorMap map_c = bf16_map(o.c, o.m, o.n, 64);
        Order order{o.m / (kM * kCluster), o.n / kN, int(band)};
        int multiprocessors = 0;
        CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
        int grid = std::min(multiprocessors / kCluster, order.rows * order.columns) * kCluster;
        return [=] { gemm_persistent<<<grid, kThreads, Shared::bytes>>>(map_a, map_b, map_c, order, o.k); };
    });
    diagnose_timeline::write();
    return code;
}
