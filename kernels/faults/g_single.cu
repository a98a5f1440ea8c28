// FP32 data multiplied as TF32 on mma.sync.
#include "g_gemm.cuh"
using namespace held;

__global__ void __launch_bounds__(128, 2) single_product(const char* a, const char* b, float* c, int n, int kbytes) {
    extern __shared__ __align__(1024) unsigned char smem[];
    gemm_tile<Tf32, true>(a, b, c, n, kbytes, blockIdx.y, blockIdx.x, smem);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 2048));
    allow_shared(single_product, kGemmShared);
    return run_gemm<Tf32>("faults/g-single", args, m, n, k, 3e-3, [&](const float* a, const float* b, float* c) {
        single_product<<<dim3(n / 128, m / 128), 128, kGemmShared>>>((const char*)a, (const char*)b, c, n, k * 4);
    });
}
