// Sum of n floats, one atomicAdd an element: all of them queue for one address.
// diagnose: expect global-atomics
#include "check.cuh"

__global__ void reduce_atomic(const float* __restrict__ in, float* out, size_t n) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 24);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();

    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(1);
    fill_uniform(in, n, key, -1, 1);
    CHECK_CUDA(cudaMemset(out, 0, sizeof(float)));

    auto launch = [&] { reduce_atomic<<<unsigned((n + 255) / 256), 256>>>(in, out, n); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    // n roundings of one running sum: about 1e-4 at 2^24 elements.
    return report("reduction/atomic", median_us(launch, runs), 0, 4.0 * n, error, 1e-3);
}
