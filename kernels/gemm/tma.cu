// bf16 GEMM: one thread orders whole tiles from the copy engine (TMA), which counts their bytes on an mbarrier; all other
// threads only multiply.
// diagnose: expect tensor-compute
#include "hopper_gemm.cuh"

constexpr int kStages = 4, kThreads = 256;

__global__ void __launch_bounds__(kThreads, 1)
    gemm_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* __restrict__ c,
             int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t base = hopper::address(shared);
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + Layout<kStages>::barriers);
    int thread = threadIdx.x, group = thread / 128, tiles = k / kK;
    int m0 = blockIdx.x * kM, n0 = blockIdx.y * kN;

    if (thread == 0) {
        for (int i = 0; i < kStages; ++i) hopper::barrier_init(&full[i], 1);
        hopper::barrier_init_visible();
    }
    __syncthreads();
    auto copy = [&](int tile) {
        if (thread == 0 && tile < tiles) {
            int slot = tile % kStages;
            uint32_t to = base + slot * kStageBytes;
            hopper::barrier_expect(&full[slot], kStageBytes);
            hopper::tma_load(to, &map_a, &full[slot], tile * kK, m0);
            hopper::tma_load(to + kBytesA, &map_b, &full[slot], tile * kK, n0);
        }
    };

    float sum[kN / 2];
    for (int tile = 0; tile < kStages - 1; ++tile) copy(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        int slot = tile % kStages;
        hopper::barrier_wait(&full[slot], tile / kStages & 1);
        multiply_stage(sum, base + slot * kStageBytes, group, tile);
        hopper::wgmma_wait<1>();
        __syncthreads();  // both warpgroups have finished tile - 1, whose stage comes next
        copy(tile + kStages - 1);
    }
    hopper::wgmma_wait<0>();
    hopper::pin(sum);
    store_outputs(sum, c + size_t(m0 + group * 64) * n + n0, n);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    return gemm_program("gemm/tma", args, kM, [](const Operands& o) {
        constexpr int bytes = Layout<kStages>::bytes;
        allow_shared(gemm_tma, bytes);
        CUtensorMap map_a = bf16_map(o.a, o.m, o.k, kM), map_b = bf16_map(o.b, o.n, o.k, kN);
        return [=] { gemm_tma<<<dim3(o.m / kM, o.n / kN), kThreads, bytes>>>(map_a, map_b, o.c, o.n, o.k); };
    });
}
