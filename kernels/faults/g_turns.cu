// A persistent bf16 product: one block a multiprocessor takes tiles in turn. The shape decides how the turns come out.
#include "g_gemm.cuh"
using namespace held;

__global__ void __launch_bounds__(128, 1) turns_product(const char* a, const char* b, float* c, int tiles_m, int tiles_n, int kbytes) {
    extern __shared__ __align__(1024) unsigned char smem[];
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x)
        gemm_tile<Bf16, true>(a, b, c, tiles_n * 128, kbytes, tile % tiles_m, tile / tiles_m, smem);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 896)), n = int(args.get("n", 2432)), k = int(args.get("k", 8192));
    int device = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    allow_shared(turns_product, kGemmShared);
    return run_gemm<Bf16>("faults/g-turns", args, m, n, k, 1e-4, [&](const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
        turns_product<<<sms, 128, kGemmShared>>>((const char*)a, (const char*)b, c, m / 128, n / 128, k * 2);
    });
}
