// bf16 GEMM on the warp-level Tensor path: cp.async into four stages, ldmatrix, mma.sync, FP32 accumulators.
// diagnose: expect legacy-mma
//
// A warp owns 64 x 64 outputs: with 64 x 32 it would read as many bytes of shared memory a cycle as the SM has, and the
// Tensor pipe would wait for them.
#include "../mma.cuh"
#include "check.cuh"

constexpr int kM = 128, kN = 256, kK = 32, kStages = 4, kThreads = 256;
constexpr int kBytesA = kM * kK * 2, kBytesB = kK * kN * 2, kStageBytes = kBytesA + kBytesB;
constexpr int kRowA = kK * 2, kRowB = kN * 2;

__global__ void __launch_bounds__(kThreads, 1)
    gemm_mma(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, __nv_bfloat16* __restrict__ c,
             int n, int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    uint32_t base = shared_address(shared);
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int m0 = blockIdx.y * kM, n0 = blockIdx.x * kN;
    int tiles = k / kK;

    // 16-byte chunk c of row r lies at chunk c ^ (r / 2 % 4) in A (two rows fill the 32 banks), c ^ (r % 8) in B: the
    // eight rows that ldmatrix reads together then lie in different banks.
    int row_a = thread / 4, chunk_a = thread % 4;
    int row_b = thread / 32, chunk_b = thread % 32;
    const __nv_bfloat16* source_a = a + size_t(m0 + row_a) * k + chunk_a * 8;
    const __nv_bfloat16* source_b = b + size_t(row_b) * n + n0 + chunk_b * 8;
    uint32_t target_a = base + row_a * kRowA + (chunk_a ^ (row_a / 2 % 4)) * 16;
    uint32_t target_b = base + kBytesA + row_b * kRowB + (chunk_b ^ (row_b % 8)) * 16;
    auto copy = [&](int tile) {
        if (tile < tiles) {
            uint32_t stage = tile % kStages * kStageBytes;
            const __nv_bfloat16* from_a = source_a + size_t(tile) * kK;
            const __nv_bfloat16* from_b = source_b + size_t(tile) * kK * n;
#pragma unroll
            for (int i = 0; i < 2; ++i) copy_async_16(target_a + stage + i * 64 * kRowA, from_a + size_t(i) * 64 * k);
#pragma unroll
            for (int i = 0; i < 4; ++i) copy_async_16(target_b + stage + i * 8 * kRowB, from_b + size_t(i) * 8 * n);
        }
        copy_commit();  // also when empty: the wait counts groups
    };

    int warp_m = warp / 4, warp_n = warp % 4;
    int half = lane / 16;
    uint32_t lane_a = base + (warp_m * 64 + lane % 16) * kRowA;
    uint32_t lane_b = base + kBytesA + lane % 16 * kRowB + warp_n * 128;
    uint32_t swizzled_a = (half ^ (lane % 16 / 2 % 4)) * 16;
    uint32_t swizzled_b = (half ^ (lane % 8)) * 16;
    uint32_t fragment_a[2][4][4], fragment_b[2][4][4];
    auto load = [&](int buffer, int tile, int step) {
        uint32_t stage = tile % kStages * kStageBytes;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            ldmatrix(fragment_a[buffer][i], lane_a + stage + i * 16 * kRowA + (swizzled_a ^ (step * 32)));
#pragma unroll
        for (int j = 0; j < 4; ++j)
            ldmatrix_transposed(fragment_b[buffer][j], lane_b + stage + step * 16 * kRowB + (swizzled_b ^ (j * 32)));
    };

    float sum[4][8][4] = {};
    for (int tile = 0; tile < kStages - 1; ++tile) copy(tile);
    copy_wait<kStages - 2>();
    __syncthreads();
    load(0, 0, 0);
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            if (step == 0) {
                load(1, tile, 1);
                // Overwrites the stage of tile - 1, which every warp had read before the last barrier.
                copy(tile + kStages - 1);
            } else {
                copy_wait<kStages - 2>();
                __syncthreads();
                load(0, tile + 1, 0);  // after the last tile: stale bytes that nobody uses
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    mma(sum[i][j], fragment_a[step][i], fragment_b[step][j / 2][j % 2 * 2],
                        fragment_b[step][j / 2][j % 2 * 2 + 1]);
        }
    }
    copy_wait<0>();

#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            __nv_bfloat16* row = c + size_t(m0 + warp_m * 64 + i * 16 + h * 8 + lane / 4) * n + n0 + warp_n * 64;
#pragma unroll
            for (int j = 0; j < 8; j += 2)
                store_row_16(row + j * 8, pack_bf16(sum[i][j][2 * h], sum[i][j][2 * h + 1]),
                             pack_bf16(sum[i][j + 1][2 * h], sum[i][j + 1][2 * h + 1]), lane);
        }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    GemmShape shape(args, 4096);
    auto [m, n, k] = shape;
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(m % kM == 0 && n % kN == 0 && k % kK == 0, "--m, --n, --k must be multiples of 128, 256, 32");

    auto* a = device_alloc<__nv_bfloat16>(size_t(m) * k);
    auto* b = device_alloc<__nv_bfloat16>(size_t(k) * n);
    auto* c = device_alloc<__nv_bfloat16>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1, 1);
    fill_uniform(b, size_t(k) * n, key + 1, -1, 1);
    poison(c, size_t(m) * n * sizeof(*c));

    constexpr int bytes = kStages * kStageBytes;
    CHECK_CUDA(cudaFuncSetAttribute(gemm_mma, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    dim3 grid(n / kN, m / kM);
    auto launch = [&, n = n, k = k] { gemm_mma<<<grid, kThreads, bytes>>>(a, b, c, n, k); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error(a, b, c, m, n, k, key + 2);
    // Rounding the output to bf16 alone costs about 1.5e-3.
    return report("gemm/mma", median_us(launch, runs), shape.flops(), 2 * shape.elements(), error, 4e-3);
}
