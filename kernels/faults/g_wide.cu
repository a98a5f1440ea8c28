// Double product, 4 x 4 outputs a thread.
#include "g_register_tile.cuh"
using namespace held;

__global__ void __launch_bounds__(256, 2) wide_product(const double* a, const double* b, double* c, int m, int n, int k) {
    register_tile<double, 64, 4>(a, b, c, m, n, k);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 2048)), n = int(args.get("n", 2048)), k = int(args.get("k", 1024));
    return run_register_tile<double>("faults/g-wide", args, m, n, k, 64, 1e-13, [&](const double* a, const double* b, double* c) {
        wide_product<<<dim3(n / 64, m / 64), 256>>>(a, b, c, m, n, k);
    });
}
