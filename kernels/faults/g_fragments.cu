// bf16 product through the WMMA API: 64 x 64 tiles, staged by plain loads and stores.
#include <mma.h>

#include "g_gemm.cuh"
using namespace held;
using namespace nvcuda;

__global__ void __launch_bounds__(128) fragments_product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    __shared__ __align__(128) __nv_bfloat16 sa[64][40], sb[64][40];
    int t = threadIdx.x, warp = t / 32, wm = (warp & 1) * 32, wn = (warp >> 1) * 32;
    size_t row0 = size_t(blockIdx.y) * 64, col0 = size_t(blockIdx.x) * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.0f);
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int i = 0; i < 2; ++i) {
            int q = t + i * 128, row = q / 4, part = (q % 4) * 8;
            *reinterpret_cast<uint4*>(&sa[row][part]) = *reinterpret_cast<const uint4*>(a + (row0 + row) * k + k0 + part);
            *reinterpret_cast<uint4*>(&sb[row][part]) = *reinterpret_cast<const uint4*>(b + (col0 + row) * k + k0 + part);
        }
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> fb[2];
            for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fa[i], &sa[wm + 16 * i][kk], 40);
            for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(fb[i], &sb[wn + 16 * i][kk], 40);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (row0 + wm + 16 * i) * n + col0 + wn + 16 * j, acc[i][j], n, wmma::mem_row_major);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 2048));
    return run_gemm<Bf16>("faults/g-fragments", args, m, n, k, 1e-4, [&](const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
        fragments_product<<<dim3(n / 64, m / 64), 128>>>(a, b, c, n, k);
    });
}
