// Second moments of 28 bf16 channels over n samples; every thread keeps the whole upper triangle for its samples.
#include "h_harness.cuh"

constexpr int kChannels = 28, kTriangle = kChannels * (kChannels + 1) / 2;

__global__ void __launch_bounds__(128) second_moments(const __nv_bfloat16* __restrict__ x, float* __restrict__ out, int n) {
    float sum[kTriangle];
#pragma unroll
    for (int t = 0; t < kTriangle; ++t) sum[t] = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v[kChannels];
#pragma unroll
        for (int c = 0; c < kChannels; ++c) v[c] = __bfloat162float(x[size_t(c) * n + i]);
#pragma unroll
        for (int a = 0; a < kChannels; ++a)
#pragma unroll
            for (int b = 0; b <= a; ++b) sum[a * (a + 1) / 2 + b] += v[a] * v[b];
    }
#pragma unroll
    for (int t = 0; t < kTriangle; ++t) {
        float s = sum[t];
#pragma unroll
        for (int step = 16; step; step >>= 1) s += __shfl_xor_sync(0xffffffffu, s, step);
        if (threadIdx.x % 32 == 0) atomicAdd(out + t, s);
    }
}

__global__ void reference_moments(const __nv_bfloat16* x, double* out, int n) {
    int a = blockIdx.x, b = blockIdx.y;
    if (b > a) return;
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += double(__bfloat162float(x[size_t(a) * n + i])) * __bfloat162float(x[size_t(b) * n + i]);
    atomicAdd(out + a * (a + 1) / 2 + b, sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 2000000, 1 << 26), blocks = positive(args, "blocks", 264, 65535);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    auto* x = device_alloc<__nv_bfloat16>(size_t(n) * kChannels);
    float* out = device_alloc<float>(kTriangle);
    double* ref = device_alloc<double>(kTriangle);
    fill_uniform(x, size_t(n) * kChannels, key, -1.0f, 1.5f);
    poison(out, kTriangle * 4);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(out, 0, kTriangle * 4));
        second_moments<<<blocks, 128>>>(x, out, n);
    };
    launch_once(launch);
    CHECK_CUDA(cudaMemset(ref, 0, kTriangle * 8));
    reference_moments<<<dim3(kChannels, kChannels), 256>>>(x, ref, n);
    CHECK_CUDA(cudaGetLastError());
    double error = relative_error(to_host(out, kTriangle), to_host(ref, kTriangle));
    double us = median_us(launch, reps);
    return report("faults/h-moments", us, 2.0 * kTriangle * n, 0, error, 1e-4);
}
