// Iterates x <- a x + b for 16384 points an item: a block an item, which leaves a last wave of 8 blocks on 132 SMs, or
// sixteen blocks an item.
#include "memory.cuh"

constexpr int POINTS = 16384, STEPS = 4096;
constexpr float B = 0.5f;

// One block of 32 warps an SM (the launch reserves shared memory) is enough to fill the FP32 pipe.
__global__ void __launch_bounds__(1024, 1) iterate_items(const float* __restrict__ rate, float* __restrict__ out) {
    size_t base = size_t(blockIdx.x) * POINTS;
    for (int i = threadIdx.x; i < POINTS; i += 1024) {
        float a = rate[base + i], x = 0;
#pragma unroll 64
        for (int step = 0; step < STEPS; ++step) x = fmaf(a, x, B);
        out[base + i] = x;
    }
}

__global__ void __launch_bounds__(1024, 1) iterate_parts(const float* __restrict__ rate, float* __restrict__ out) {
    size_t i = size_t(blockIdx.x) * 1024 + threadIdx.x;
    float a = rate[i], x = 0;
#pragma unroll 64
    for (int step = 0; step < STEPS; ++step) x = fmaf(a, x, B);
    out[i] = x;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t items = size_arg(args, "items", 140), n = items * POINTS;
    require(items <= 65535, "--items is at most 65535");
    args.done();
    auto rate = device_alloc<float>(n), out = device_alloc<float>(n);
    fill_uniform(rate, n, s, 0.99f, 0.999f);
    poison(out, 4 * n);
    int shared = 120 * 1024;  // one block an SM in both kernels
    CHECK_CUDA(cudaFuncSetAttribute(iterate_items, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK_CUDA(cudaFuncSetAttribute(iterate_parts, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    auto launch = [&] {
        if (fault) iterate_items<<<unsigned(items), 1024, shared>>>(rate, out);
        else iterate_parts<<<unsigned(items * (POINTS / 1024)), 1024, shared>>>(rate, out);
    };
    run_once(launch);
    auto a = to_host(rate, n);
    double error = error_against(out, n, [&](size_t i) { return B * (1 - std::pow(double(a[i]), STEPS)) / (1 - double(a[i])); });
    return report(fault ? "faults/iterate-items" : "faults/iterate-parts", median_us(launch, r), 2.0 * n * STEPS,
                  8.0 * n, error, 1e-3);
}
