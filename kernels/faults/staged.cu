// C = A B^T in bf16 on mma.sync, tiles of 128 x 256, one block an SM: tiles go through registers into the one buffer, or by
// cp.async into four.
#include "tiles.cuh"
using T = Tiles<8>;

__global__ void __launch_bounds__(256, 1) product_one_buffer(const bf16* a, const bf16* b, float* c, int n, int k) {
    extern __shared__ __align__(128) bf16 shared[];
    float acc[4][8][4] = {};
    for (int k0 = 0; k0 < k; k0 += kDepth) {
        uint4 held[T::chunks];
        int at;
#pragma unroll
        for (int q = 0; q < T::chunks; ++q) held[q] = *reinterpret_cast<const uint4*>(T::source(a, b, k, k0, q, at));
#pragma unroll
        for (int q = 0; q < T::chunks; ++q) {
            T::source(a, b, k, k0, q, at);
            *reinterpret_cast<uint4*>(shared + at) = held[q];
        }
        __syncthreads();
        T::multiply(shared, acc);
        __syncthreads();
    }
    T::store(c, n, acc);
}

__global__ void __launch_bounds__(256, 1) product_four_buffers(const bf16* a, const bf16* b, float* c, int n, int k) {
    extern __shared__ __align__(128) bf16 shared[];
    product_ahead<8>(a, b, c, n, k, shared);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int m = int(args.get("m", 8448)), n = int(args.get("n", 4096)), k = int(args.get("k", 1024)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(m > 0 && n > 0 && k > 0 && m % 128 == 0 && n % 256 == 0 && k % 32 == 0, "--m, --n and --k must be multiples of 128, 256 and 32");
    bf16 *a = device_alloc<bf16>(size_t(m) * k), *b = device_alloc<bf16>(size_t(n) * k);
    float* c = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1.f, 1.f);
    fill_uniform(b, size_t(n) * k, key + 1, -1.f, 1.f);
    size_t one = sizeof(bf16) * T::elements;
    allow_smem(product_one_buffer, one);
    allow_smem(product_four_buffers, 4 * one);
    auto launch = [&] {
        dim3 grid(n / 256, m / 128);
        if (fault) product_one_buffer<<<grid, 256, one>>>(a, b, c, n, k);
        else product_four_buffers<<<grid, 256, 4 * one>>>(a, b, c, n, k);
    };
    return run_checked(fault ? "faults/product-one-buffer" : "faults/product-four-buffers", reps, launch, c, size_t(m) * n,
                       product_reference(a, b, m, n, k), 2.0 * m * n * k, 2.0 * k * (m + n) + 4.0 * m * n, 1e-3);
}
