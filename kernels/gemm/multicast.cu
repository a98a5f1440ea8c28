// bf16 GEMM: two blocks of a cluster, one below the other, need the same tile of B. Each copies half of it into both: B comes out of
// L2 once instead of twice.
// diagnose: expect tensor-compute
#include "ring.cuh"

constexpr int kStages = 4, kCluster = 2;

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_multicast(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   bf16* __restrict__ c, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<kStages, kCluster> ring(shared, Layout<kStages>::barriers);
    int thread = threadIdx.x % 128, steps = k / kK, rank = hopper::cluster_rank();
    int m0 = blockIdx.x * kM, n0 = blockIdx.y * kN;
    if (threadIdx.x == 0) ring.init();
    hopper::cluster_sync();  // the peer's copies count on this block's barriers

    if (threadIdx.x < 128) {
        hopper::registers_give<kProducerRegisters>();
        if (thread == 0) {
            for (int step = 0; step < steps; ++step) {
                uint64_t* full = &ring.full[ring.slot];
                // Empty in both blocks. The peer's half may arrive before this expect: the phase cannot end without it.
                hopper::barrier_wait(&ring.empty[ring.slot], ring.phase ^ 1);
                hopper::barrier_expect(full, kStageBytes);
                hopper::tma_load(ring.stage(), &map_a, full, step * kK, m0);
                hopper::tma_load_multicast(ring.stage() + kBytesA + rank * (kBytesB / kCluster), &map_b, full, step * kK,
                                           n0 + rank * (kN / kCluster), (1 << kCluster) - 1);
                ring.next();
            }
        }
    } else {
        hopper::registers_take<kConsumerRegisters>();
        int group = threadIdx.x / 128 - 1;
        float sum[kN / 2];
        diagnose_timeline::Track track;
        ring.multiply(sum, steps, group, thread, track);
        store_outputs(sum, c + size_t(m0 + group * 64) * n + n0, n);
    }
    hopper::cluster_sync();  // the peer may still copy into this block and signal its barriers
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    return gemm_program("gemm/multicast", args, kM * kCluster, [](const Operands& o) {
        constexpr int bytes = Layout<kStages>::bytes;
        allow_shared(gemm_multicast, bytes);
        CUtensorMap map_a = bf16_map(o.a, o.m, o.k, kM), map_b = bf16_map(o.b, o.n, o.k, kN / kCluster);
        return [=] { gemm_multicast<<<dim3(o.m / kM, o.n / kN), kThreads, bytes>>>(map_a, map_b, o.c, o.n, o.k); };
    });
}
