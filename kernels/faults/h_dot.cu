// Dot product of two FP32 vectors.
#include "h_harness.cuh"

__device__ void add_warp(float sum, float* out) {
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

__global__ void dot(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
    float sum = 0;
#pragma unroll 4
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
    add_warp(sum, out);
}

__global__ void dot_wide(const float4* __restrict__ a, const float4* __restrict__ b, float* __restrict__ out, int n) {
    float sum = 0;
#pragma unroll 2
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 p = a[i], q = b[i];
        sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
    }
    add_warp(sum, out);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 24000000, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *a = device_alloc<float>(n), *b = device_alloc<float>(n), *out = device_alloc<float>(1);
    fill_uniform(a, n, key, 0.0f, 1.0f);
    fill_uniform(b, n, key + 1, 0.0f, 1.0f);
    poison(out, 4);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(out, 0, 4));
        if (fix) dot_wide<<<132 * 5, 384>>>(reinterpret_cast<float4*>(a), reinterpret_cast<float4*>(b), out, n / 4);
        else dot<<<132, 32>>>(a, b, out, n);
    };
    launch_once(launch);
    std::vector<float> p = to_host(a, n), q = to_host(b, n);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += double(p[i]) * q[i];
    double error = relative_error(to_host(out, 1), {sum});
    double us = median_us(launch, reps);
    return report("faults/h-dot", us, 0, 8.0 * n, error, 2e-4);
}
