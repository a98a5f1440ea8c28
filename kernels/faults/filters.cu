// Step responses of first-order filters, y = a y + 1, many steps, one block of four warps an SM: a thread owns eight filters.
// The input is a constant, so an FFMA reads two registers: three that all change would need more than the banks deliver.
#include "pair.cuh"
constexpr int kFilters = 8;

// One filter after the other: each step waits for the one before.
__global__ void filters_in_turn(const float* a, float* y, int steps, int n) {
    int stride = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int f = 0; f < kFilters; ++f) {
        int i = t + f * stride;
        if (i >= n) return;
        float p = a[i], v = 0;
#pragma unroll 16
        for (int s = 0; s < steps; ++s) v = fmaf(p, v, 1.0f);
        y[i] = v;
    }
}

// All eight filters advance together: seven independent steps fill the latency of each.
__global__ void filters_abreast(const float* a, float* y, int steps, int n) {
    int stride = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x;
    float p[kFilters], v[kFilters];
#pragma unroll
    for (int f = 0; f < kFilters; ++f) {
        p[f] = a[min(t + f * stride, n - 1)], v[f] = 0;
    }
#pragma unroll 32
    for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int f = 0; f < kFilters; ++f) v[f] = fmaf(p[f], v[f], 1.0f);
#pragma unroll
    for (int f = 0; f < kFilters; ++f)
        if (t + f * stride < n) y[t + f * stride] = v[f];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int steps = int(args.get("steps", 32768)), n = int(args.get("n", 135168)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(steps > 0 && n > 0, "--steps and --n must be positive");
    float *a = device_alloc<float>(n), *y = device_alloc<float>(n);
    fill_uniform(a, n, key, 0.9f, 0.999f);
    int blocks = (n + 128 * kFilters - 1) / (128 * kFilters);
    auto ha = to_host(a, n);
    auto reference = [&](size_t i) {
        double v = 0;
        for (int s = 0; s < steps; ++s) v = double(ha[i]) * v + 1;
        return v;
    };
    auto launch = [&] {
        if (fault) filters_in_turn<<<blocks, 128>>>(a, y, steps, n);
        else filters_abreast<<<blocks, 128>>>(a, y, steps, n);
    };
    return run_checked(fault ? "faults/filters-in-turn" : "faults/filters-abreast", reps, launch, y, n, reference,
                       2.0 * n * steps, 8.0 * n, 1e-3, 512);
}
