// e4m3 operands, widened to half after ldmatrix and multiplied in half.
#include "g_gemm.cuh"
using namespace held;

__global__ void __launch_bounds__(128, 2) quarters_product(const char* a, const char* b, float* c, int n, int kbytes) {
    extern __shared__ __align__(1024) unsigned char smem[];
    gemm_tile<Fp8AsHalf, true>(a, b, c, n, kbytes, blockIdx.y, blockIdx.x, smem);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 4096));
    allow_shared(quarters_product, kGemmShared);
    return run_gemm<Fp8AsHalf>("faults/g-quarters", args, m, n, k, 1e-4,
                               [&](const __nv_fp8_e4m3* a, const __nv_fp8_e4m3* b, float* c) {
        quarters_product<<<dim3(n / 128, m / 128), 128, kGemmShared>>>((const char*)a, (const char*)b, c, n, k);
    });
}
