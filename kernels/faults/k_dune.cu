// Iterates n logistic maps, eight a thread on one small block a multiprocessor. `fault` runs them one after another, `fix` together.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kMaps = 8, kBlock = 128;

__host__ __device__ inline float turn(float x, float rate) {
    float t = fmaf(-x, x, x);
    return rate * t;
}

__global__ void __launch_bounds__(kBlock) iterate(const float* __restrict__ rates, float* __restrict__ state, int steps) {
    int threads = gridDim.x * kBlock, id = blockIdx.x * kBlock + threadIdx.x;
#pragma unroll 1
    for (int m = 0; m < kMaps; ++m) {
        float rate = rates[m * threads + id], x = 0.5f;
#pragma unroll 8
        for (int s = 0; s < steps; ++s) x = turn(x, rate);
        state[m * threads + id] = x;
    }
}

__global__ void __launch_bounds__(kBlock) iterate_together(const float* __restrict__ rates, float* __restrict__ state, int steps) {
    int threads = gridDim.x * kBlock, id = blockIdx.x * kBlock + threadIdx.x;
    float rate[kMaps], x[kMaps];
#pragma unroll
    for (int m = 0; m < kMaps; ++m) {
        rate[m] = rates[m * threads + id];
        x[m] = 0.5f;
    }
#pragma unroll 4
    for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int m = 0; m < kMaps; ++m) x[m] = turn(x[m], rate[m]);
#pragma unroll
    for (int m = 0; m < kMaps; ++m) state[m * threads + id] = x[m];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int steps = positive(args, "steps", 12000, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int blocks = sm_count();
    size_t n = size_t(blocks) * kBlock * kMaps;
    float *rates = device_alloc<float>(n), *state = device_alloc<float>(n);
    fill_uniform(rates, n, key, 3.5f, 3.99f);
    poison(state, n * sizeof(float));
    auto launch = [&] {
        if (fix) iterate_together<<<blocks, kBlock>>>(rates, state, steps);
        else iterate<<<blocks, kBlock>>>(rates, state, steps);
    };
    launch_once(launch);
    std::vector<float> rate = to_host(rates, n);
    auto wanted = [&](size_t i) {
        float x = 0.5f;
        for (int s = 0; s < steps; ++s) x = turn(x, rate[i]);
        return x;
    };
    double error = sampled_error(to_host(state, n), wanted, 200);
    return report("faults/k-dune", median_us(launch, reps), 3.0 * n * steps, 0, error, 0);
}
