// Largest element of an FP32 vector; a compare-and-swap loop stands in for the missing float atomicMax.
#include "h_harness.cuh"

__device__ void atomic_max(float* address, float value) {
    int* bits = reinterpret_cast<int*>(address);
    int old = *bits, seen;
    do {
        seen = old;
        old = atomicCAS(bits, seen, __float_as_int(fmaxf(value, __int_as_float(seen))));
    } while (old != seen);
}

__global__ void largest(const float* __restrict__ x, float* out, int n) {
    float top = -INFINITY;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) top = fmaxf(top, x[i]);
    atomic_max(out, top);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 8388608, 1 << 28), blocks = positive(args, "blocks", 1024, 65535);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float *x = device_alloc<float>(n), *out = device_alloc<float>(1);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    const float lowest = -INFINITY;
    CHECK_CUDA(cudaMemcpy(out, &lowest, 4, cudaMemcpyHostToDevice));
    auto launch = [&] { largest<<<blocks, 256>>>(x, out, n); };
    launch_once(launch);
    std::vector<float> host = to_host(x, n);
    double error = to_host(out, 1)[0] == *std::max_element(host.begin(), host.end()) ? 0 : 1;
    double us = median_us(launch, reps);
    return report("faults/h-peak", us, 0, 4.0 * n, error, 0);
}
