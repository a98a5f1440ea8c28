// Histogram of gradient directions (nine bins, most pixels flat), weighted by magnitude, over a whole image.
#include "h_harness.cuh"

constexpr int kBins = 9;

__host__ __device__ inline int bin_of(unsigned direction) { return direction < 150 ? 0 : 1 + int(direction & 7); }

__global__ void __launch_bounds__(256) directions(const uint4* __restrict__ direction, const uint4* __restrict__ magnitude, unsigned long long* __restrict__ totals, int groups) {
    __shared__ unsigned bins[kBins];
    if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < groups; i += gridDim.x * 256) {
        uint4 d = direction[i], m = magnitude[i];
        unsigned ds[4] = {d.x, d.y, d.z, d.w}, ms[4] = {m.x, m.y, m.z, m.w};
#pragma unroll
        for (int k = 0; k < 16; ++k) atomicAdd(&bins[bin_of(ds[k / 4] >> (8 * (k % 4)) & 255u)], ms[k / 4] >> (8 * (k % 4)) & 255u);
    }
    __syncthreads();
    if (threadIdx.x < kBins) atomicAdd(&totals[threadIdx.x], (unsigned long long)bins[threadIdx.x]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "pixels", 134217728, 1 << 30);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 16 == 0, "--pixels must be a multiple of 16");
    uint8_t *direction = device_alloc<uint8_t>(n), *magnitude = device_alloc<uint8_t>(n);
    auto* totals = device_alloc<unsigned long long>(kBins);
    fill_uniform(direction, n, key, 0.f, 1.f);
    fill_uniform(magnitude, n, key + 1, 0.f, 1.f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(totals, 0, kBins * sizeof(unsigned long long)));
        directions<<<1056, 256>>>(reinterpret_cast<uint4*>(direction), reinterpret_cast<uint4*>(magnitude), totals, n / 16);
    };
    launch_once(launch);
    std::vector<uint8_t> d = to_host(direction, n), m = to_host(magnitude, n);
    std::vector<unsigned long long> got = to_host(totals, kBins), want(kBins);
    for (int i = 0; i < n; ++i) want[bin_of(d[i])] += m[i];
    double wrong = 0;
    for (int k = 0; k < kBins; ++k) wrong += got[k] != want[k];
    return report("faults/k-shade", median_us(launch, reps), 0, 2.0 * n, wrong, 0);
}
