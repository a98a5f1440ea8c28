// bf16 product; `fault` keeps the tile's rows of 128 bytes as they come, `fix` permutes their 16-byte chunks.
#include "g_gemm.cuh"
using namespace held;

template <bool SWIZZLE>
__global__ void __launch_bounds__(128, 2) rows_product(const char* a, const char* b, float* c, int n, int kbytes) {
    extern __shared__ __align__(1024) unsigned char smem[];
    gemm_tile<Bf16, SWIZZLE>(a, b, c, n, kbytes, blockIdx.y, blockIdx.x, smem);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 2048));
    auto kernel = fix ? rows_product<true> : rows_product<false>;
    allow_shared(kernel, kGemmShared);
    return run_gemm<Bf16>("faults/g-rows", args, m, n, k, 1e-4, [&](const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
        kernel<<<dim3(n / 128, m / 128), 128, kGemmShared>>>((const char*)a, (const char*)b, c, n, k * 2);
    });
}
