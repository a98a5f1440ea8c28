// FP32 product, 128 x 128 tiles, 8 x 8 outputs a thread.
#include "g_register_tile.cuh"
using namespace held;

__global__ void __launch_bounds__(256, 2) plain32_product(const float* a, const float* b, float* c, int m, int n, int k) {
    register_tile<float, 128, 8>(a, b, c, m, n, k);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4224)), n = int(args.get("n", 2048)), k = int(args.get("k", 1024));
    return run_register_tile<float>("faults/g-plain32", args, m, n, k, 128, 1e-5, [&](const float* a, const float* b, float* c) {
        plain32_product<<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, k);
    });
}
