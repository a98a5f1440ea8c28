// bf16 GEMM: a producer warpgroup keeps the copy engine busy and gives its registers away; two consumer warpgroups multiply and
// never meet: they wait for full stages and release them.
// diagnose: expect tensor-compute
#include "ring.cuh"

constexpr int kStages = 4;

__global__ void __launch_bounds__(kThreads, 1)
    gemm_specialised(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     bf16* __restrict__ c, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<kStages, 1> ring(shared, Layout<kStages>::barriers);
    int thread = threadIdx.x % 128, steps = k / kK;
    int m0 = blockIdx.x * kM, n0 = blockIdx.y * kN;
    if (threadIdx.x == 0) ring.init();
    __syncthreads();

    if (threadIdx.x < 128) {
        hopper::registers_give<kProducerRegisters>();
        if (thread == 0) {
            diagnose_timeline::Track track(0, true);
            for (int step = 0; step < steps; ++step) {
                uint64_t* full = &ring.full[ring.slot];
                track.begin(Kind::barrier_wait, step);
                hopper::barrier_wait(&ring.empty[ring.slot], ring.phase ^ 1);
                track.begin(Kind::tma_issue, step);
                hopper::barrier_expect(full, kStageBytes);
                hopper::tma_load(ring.stage(), &map_a, full, step * kK, m0);
                hopper::tma_load(ring.stage() + kBytesA, &map_b, full, step * kK, n0);
                ring.next();
            }
            track.end();
        }
    } else {
        hopper::registers_take<kConsumerRegisters>();
        int group = threadIdx.x / 128 - 1;
        diagnose_timeline::Track track(1 + group, thread == 0);
        float sum[kN / 2];
        ring.multiply(sum, steps, group, thread, track);
        track.begin(Kind::epilogue);
        store_outputs(sum, c + size_t(m0 + group * 64) * n + n0, n);
        track.end();
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    diagnose_timeline::start("gemm_specialised", {"producer", "consumer 0", "consumer 1"});
    int code = gemm_program("gemm/specialised", args, kM, [](const Operands& o) {
        constexpr int bytes = Layout<kStages>::bytes;
        allow_shared(gemm_specialised, bytes);
        CUtensorMap map_a = bf16_map(o.a, o.m, o.k, kM), map_b = bf16_map(o.b, o.n, o.k, kN);
        return [=] { gemm_specialised<<<dim3(o.m / kM, o.n / kN), kThreads, bytes>>>(map_a, map_b, o.c, o.n, o.k); };
    });
    diagnose_timeline::write();
    return code;
}
