// Histogram of floats in [0, 1) over 16 bins.
#include "h_harness.cuh"

__global__ void count_bins(const float* __restrict__ x, unsigned* __restrict__ bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(bins + min(max(int(x[i] * 16.0f), 0), 15), 1u);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 3000000, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float* x = device_alloc<float>(n);
    unsigned* bins = device_alloc<unsigned>(16);
    fill_uniform(x, n, key, 0.0f, 1.0f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(bins, 0, 64));
        count_bins<<<blocks_for(n, 192), 192>>>(x, bins, n);
    };
    poison(bins, 64);
    launch_once(launch);
    std::vector<float> host = to_host(x, n);
    std::vector<unsigned> got = to_host(bins, 16), ref(16, 0);
    for (float v : host) ++ref[std::min(std::max(int(v * 16.0f), 0), 15)];
    double wrong = 0;
    for (int i = 0; i < 16; ++i) wrong += got[i] != ref[i];
    double us = median_us(launch, reps);
    return report("faults/h-histogram", us, 0, 4.0 * n, wrong, 0);
}
