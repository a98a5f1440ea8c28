// bf16 GEMM: wgmma reads its operands from shared memory, which all threads fill with cp.async, four stages deep.
// diagnose: expect tensor-compute
#include "hopper_gemm.cuh"

constexpr int kStages = 4, kThreads = 256;

__global__ void __launch_bounds__(kThreads, 1)
    gemm_wgmma(const bf16* __restrict__ a, const bf16* __restrict__ b, bf16* __restrict__ c, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t base = hopper::address(shared);
    int thread = threadIdx.x, group = thread / 128, tiles = k / kK;
    int m0 = blockIdx.x * kM, n0 = blockIdx.y * kN;

    // A thread copies 16-byte chunk thread % 8 of every 32nd row. Chunk c of row r lies at chunk c ^ (r % 8): the 128-byte
    // swizzle that the descriptors name. Row r + 32 has the same r % 8.
    int row = thread / 8, chunk = thread % 8;
    const bf16* source_a = a + size_t(m0 + row) * k + chunk * 8;
    const bf16* source_b = b + size_t(n0 + row) * k + chunk * 8;
    uint32_t target = base + row * 128 + (chunk ^ (row % 8)) * 16;
    auto copy = [&](int tile) {
        if (tile < tiles) {
            uint32_t to = target + tile % kStages * kStageBytes;
#pragma unroll
            for (int i = 0; i < kM / 32; ++i) copy_async_16(to + i * 4096, source_a + size_t(i) * 32 * k + tile * kK);
#pragma unroll
            for (int i = 0; i < kN / 32; ++i) copy_async_16(to + kBytesA + i * 4096, source_b + size_t(i) * 32 * k + tile * kK);
        }
        copy_commit();  // also when empty: the wait counts groups
    };

    float sum[kN / 2];
    for (int tile = 0; tile < kStages - 2; ++tile) copy(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        copy_wait<kStages - 3>();
        hopper::shared_visible_to_async();
        __syncthreads();
        multiply_stage(sum, base + tile % kStages * kStageBytes, group, tile);
        hopper::wgmma_wait<1>();
        // Overwrites the stage of tile - 2: both warpgroups had waited for its wgmma before the last barrier.
        copy(tile + kStages - 2);
    }
    copy_wait<0>();
    hopper::wgmma_wait<0>();
    hopper::pin(sum);
    store_outputs(sum, c + size_t(m0 + group * 64) * n + n0, n);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    return gemm_program("gemm/wgmma", args, kM, [](const Operands& o) {
        constexpr int bytes = kStages * kStageBytes;
        allow_shared(gemm_wgmma, bytes);
        return [=] { gemm_wgmma<<<dim3(o.m / kM, o.n / kN), kThreads, bytes>>>(o.a, o.b, o.c, o.n, o.k); };
    });
}
