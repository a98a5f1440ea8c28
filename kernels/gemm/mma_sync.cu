// bf16 GEMM on mma.sync with synchronous copies: a tile comes through registers into the only stage of shared memory, everybody waits,
// everybody multiplies. Tile and fragments are those of gemm/mma.
// diagnose: expect no-overlap
#include "../mma.cuh"
#include "check.cuh"

constexpr int kM = 128, kN = 256, kK = 32, kThreads = 256;
constexpr int kBytesA = kM * kK * 2, kBytesB = kK * kN * 2;
constexpr int kRowA = kK * 2, kRowB = kN * 2;

__global__ void __launch_bounds__(kThreads, 1)
    gemm_mma_sync(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, __nv_bfloat16* __restrict__ c,
                  int n, int k) {
    __shared__ __align__(128) unsigned char shared[kBytesA + kBytesB];
    uint32_t base = shared_address(shared);
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int m0 = blockIdx.y * kM, n0 = blockIdx.x * kN;

    // 16-byte chunk c of row r lies at chunk c ^ (r / 2 % 4) in A (two rows fill the 32 banks), c ^ (r % 8) in B: the
    // eight rows that ldmatrix reads together then lie in different banks.
    int row_a = thread / 4, chunk_a = thread % 4;
    int row_b = thread / 32, chunk_b = thread % 32;
    const __nv_bfloat16* source_a = a + size_t(m0 + row_a) * k + chunk_a * 8;
    const __nv_bfloat16* source_b = b + size_t(row_b) * n + n0 + chunk_b * 8;
    unsigned char* target_a = shared + row_a * kRowA + (chunk_a ^ (row_a / 2 % 4)) * 16;
    unsigned char* target_b = shared + kBytesA + row_b * kRowB + (chunk_b ^ (row_b % 8)) * 16;

    int warp_m = warp / 4, warp_n = warp % 4;
    int half = lane / 16;
    uint32_t lane_a = base + (warp_m * 64 + lane % 16) * kRowA;
    uint32_t lane_b = base + kBytesA + lane % 16 * kRowB + warp_n * 128;
    uint32_t swizzled_a = (half ^ (lane % 16 / 2 % 4)) * 16;
    uint32_t swizzled_b = (half ^ (lane % 8)) * 16;

    float sum[4][8][4] = {};
    for (int k0 = 0; k0 < k; k0 += kK) {
        uint4 part_a[2], part_b[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) part_a[i] = *reinterpret_cast<const uint4*>(source_a + size_t(i) * 64 * k + k0);
#pragma unroll
        for (int i = 0; i < 4; ++i) part_b[i] = *reinterpret_cast<const uint4*>(source_b + size_t(k0 + i * 8) * n);
        __syncthreads();  // the last tile has been read
#pragma unroll
        for (int i = 0; i < 2; ++i) *reinterpret_cast<uint4*>(target_a + i * 64 * kRowA) = part_a[i];
#pragma unroll
        for (int i = 0; i < 4; ++i) *reinterpret_cast<uint4*>(target_b + i * 8 * kRowB) = part_b[i];
        __syncthreads();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            uint32_t fragment_a[4][4], fragment_b[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) ldmatrix(fragment_a[i], lane_a + i * 16 * kRowA + (swizzled_a ^ (step * 32)));
#pragma unroll
            for (int j = 0; j < 4; ++j)
                ldmatrix_transposed(fragment_b[j], lane_b + step * 16 * kRowB + (swizzled_b ^ (j * 32)));
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    mma(sum[i][j], fragment_a[i], fragment_b[j / 2][j % 2 * 2], fragment_b[j / 2][j % 2 * 2 + 1]);
        }
    }

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

    dim3 grid(n / kN, m / kM);
    auto launch = [&, n = n, k = k] { gemm_mma_sync<<<grid, kThreads>>>(a, b, c, n, k); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error(a, b, c, m, n, k, key + 2);
    // Rounding the output to bf16 alone costs about 1.5e-3.
    return report("gemm/mma-sync", median_us(launch, runs), shape.flops(), 2 * shape.elements(), error, 4e-3);
}
