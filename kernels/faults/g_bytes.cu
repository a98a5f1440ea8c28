// int8 product with 32-bit sums on mma.sync.
#include "g_gemm.cuh"
using namespace held;

__global__ void __launch_bounds__(128, 2) bytes_product(const char* a, const char* b, int* c, int n, int kbytes) {
    extern __shared__ __align__(1024) unsigned char smem[];
    gemm_tile<Int8, true>(a, b, c, n, kbytes, blockIdx.y, blockIdx.x, smem);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 8192));
    allow_shared(bytes_product, kGemmShared);
    return run_gemm<Int8>("faults/g-bytes", args, m, n, k, 1e-6, [&](const int8_t* a, const int8_t* b, int* c) {
        bytes_product<<<dim3(n / 128, m / 128), 128, kGemmShared>>>((const char*)a, (const char*)b, c, n, k);
    });
}
