// y = x / max|x| in one launch: block 0 finds the peak and publishes it, the others wait for it. The wait is bounded: a
// block that saw nothing in time writes NaN, which the comparison finds.
#include "h_harness.cuh"

constexpr int kThreads = 512, kPolls = 200000;

// state[0]: 1 when state[1] holds the peak's bits; both zero at the start.
__global__ void __launch_bounds__(kThreads) normalize(const float4* __restrict__ x, float4* __restrict__ y, unsigned* state,
                                                      int n) {
    __shared__ float shared_peak, part[kThreads / 32];
    if (blockIdx.x == 0) {
        float peak = 0;
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += kThreads) {
            float4 v = x[i];
            peak = fmaxf(peak, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
        }
        for (int s = 16; s; s >>= 1) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, s));
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = peak;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < kThreads / 32; ++w) peak = fmaxf(peak, part[w]);
            shared_peak = peak;
            atomicExch(state + 1, __float_as_uint(peak));
            __threadfence();
            atomicExch(state, 1u);
        }
    } else if (threadIdx.x == 0) {
        unsigned ready = 0;
        for (int poll = 0; poll < kPolls && !ready; ++poll) {
            ready = *reinterpret_cast<volatile unsigned*>(state);
            if (!ready) __nanosleep(100);
        }
        __threadfence();
        shared_peak = ready ? __uint_as_float(*reinterpret_cast<volatile unsigned*>(state + 1)) : __uint_as_float(0x7fffffffu);
    }
    __syncthreads();
    float scale = 1.0f / shared_peak;
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
        float4 v = x[i];
        y[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
    }
}

struct Reference {
    const float* x;
    double peak;
    __device__ double operator()(size_t i) const { return x[i] / peak; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 4000000, 1 << 26), blocks = positive(args, "blocks", 264, 264);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    unsigned* state = device_alloc<unsigned>(2);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    poison(y, size_t(n) * 4);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(state, 0, 8));
        normalize<<<blocks, kThreads>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y), state, n / 4);
    };
    launch_once(launch);
    std::vector<float> host = to_host(x, n);
    double peak = 0;
    for (float v : host) peak = std::max(peak, double(std::fabs(v)));
    double error = device_error(y, n, Reference{x, peak});
    double us = median_us(launch, reps);
    return report("faults/h-normalize", us, 0, 8.0 * n, error, 1e-6);
}
