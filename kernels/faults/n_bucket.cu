// A leaky bucket model of soil water: a column a thread, step by step through the rain, the state of each step kept.
// `fault` may not read ahead, as the result could be the rain's array (no __restrict__); `fix` reads 64 steps ahead.
#include "h_harness.cuh"

constexpr int kBlock = 128, kAhead = 32;

struct Soil {
    float drain, capacity;
};

template <class T>
__host__ __device__ inline T next_state(T water, T rain, Soil soil) {
    T filled = water + rain - T(0.4);
    filled = filled > T(0) ? filled : T(0);
    filled = filled < T(soil.capacity) ? filled : T(soil.capacity);
    return filled - T(soil.drain) * filled;
}

__global__ void __launch_bounds__(kBlock, 2) soil_water(const float* rain, float* water, int columns, int steps, Soil soil) {
    int c = blockIdx.x * kBlock + threadIdx.x;
    if (c >= columns) return;
    float state = 0;
    for (int t = 0; t < steps; ++t) {
        state = next_state(state, rain[size_t(t) * columns + c], soil);
        water[size_t(t) * columns + c] = state;
    }
}

__device__ __forceinline__ void fetch(float ahead[kAhead], const float* __restrict__ rain, int columns, int t, int c) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = rain[size_t(t + i) * columns + c];
}

__device__ __forceinline__ void advance(float& state, const float ahead[kAhead], float* __restrict__ water, int columns, int t, int c,
                                        Soil soil) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) water[size_t(t + i) * columns + c] = state = next_state(state, ahead[i], soil);
}

__global__ void __launch_bounds__(kBlock, 2) soil_water_ahead(const float* __restrict__ rain, float* __restrict__ water, int columns, int steps,
                                                           Soil soil) {
    int c = blockIdx.x * kBlock + threadIdx.x;
    if (c >= columns) return;
    float state = 0, even[kAhead], odd[kAhead];
    fetch(even, rain, columns, 0, c);
    for (int t = 0; t < steps; t += 2 * kAhead) {
        fetch(odd, rain, columns, t + kAhead, c);
        advance(state, even, water, columns, t, c, soil);
        fetch(even, rain, columns, min(t + 2 * kAhead, steps - kAhead), c);
        advance(state, odd, water, columns, t + kAhead, c, soil);
    }
}

__global__ void reference_soil(const float* rain, double* water, int columns, int steps, Soil soil) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= columns) return;
    double state = 0;
    for (int t = 0; t < steps; ++t) water[size_t(t) * columns + c] = state = next_state(state, double(rain[size_t(t) * columns + c]), soil);
}

struct Reference {
    const double* water;
    __device__ double operator()(size_t i) const { return water[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int columns = positive(args, "columns", 33792, 1 << 20), steps = positive(args, "steps", 2048, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(steps % (2 * kAhead) == 0, "--steps must be a multiple of 64");
    size_t n = size_t(columns) * steps;
    float *rain = device_alloc<float>(n), *water = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(rain, n, key, 0.0f, 1.0f);
    poison(water, n * sizeof(float));
    Soil soil{0.0625f, 3.0f};
    unsigned blocks = blocks_for(columns, kBlock);
    auto launch = [&] {
        if (fix) soil_water_ahead<<<blocks, kBlock>>>(rain, water, columns, steps, soil);
        else soil_water<<<blocks, kBlock>>>(rain, water, columns, steps, soil);
    };
    launch_once(launch);
    reference_soil<<<blocks, kBlock>>>(rain, ref, columns, steps, soil);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(water, n, Reference{ref});
    return report("faults/n-bucket", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-4);
}
