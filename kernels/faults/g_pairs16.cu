// Half product on half2 arithmetic, 8 x 8 outputs a thread.
#include "g_register_tile.cuh"
using namespace held;

__global__ void __launch_bounds__(256, 2) pairs16_product(const __half* a, const __half* b, __half* c, int m, int n, int k) {
    register_tile<__half, 128, 8>(a, b, c, m, n, k);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 2048)), k = int(args.get("k", 1024));
    return run_register_tile<__half>("faults/g-pairs16", args, m, n, k, 128, 3e-2, [&](const __half* a, const __half* b, __half* c) {
        pairs16_product<<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, k);
    });
}
