// Moves pairs of atoms along their distance under one of eight potentials.
// `fault` has the kinds as the molecules bring them, `fix` the same pairs sorted by kind.
#include "h_harness.cuh"

constexpr int kKinds = 8, kSteps = 48;

__device__ __forceinline__ float exponential(float x) { return __expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float inverse(float x) { return __fdividef(1.0f, x); }
__device__ __forceinline__ double inverse(double x) { return 1.0 / x; }

template <class T>
__device__ __forceinline__ T force_of(int kind, T x) {
    T d = x - T(1.25);
    switch (kind) {
        case 0: {  // Lennard-Jones
            T i = inverse(x * x), i3 = i * i * i;
            return T(24) * i3 * (T(2) * i3 - T(1)) * inverse(x);
        }
        case 1: {  // Morse
            T e = exponential(T(-2.5) * d);
            return T(5) * (e * e - e);
        }
        case 2:  // harmonic with two anharmonic terms
            return T(-8) * d * (T(1) - d * (T(1.5) - T(0.875) * d));
        case 3: {  // Buckingham
            T i = inverse(x), i2 = i * i;
            return T(90) * exponential(T(-3) * x) - T(6) * i2 * i2 * i2 * i;
        }
        case 4: {  // Yukawa
            T i = inverse(x);
            return T(1.5) * exponential(T(-0.75) * x) * (i + T(0.75)) * i;
        }
        case 5:  // finitely extensible spring
            return T(-6) * d * inverse(T(1) - d * d * T(0.5625));
        case 6:  // a fitted polynomial
            return T(-4) * d + d * d * (T(2.1) + d * (T(-1.3) + d * (T(0.7) + d * (T(-0.31) + d * (T(0.12) - T(0.04) * d)))));
        default:  // Gaussian well
            return T(-9) * d * exponential(T(-1.75) * d * d);
    }
}

template <class T>
__device__ __forceinline__ T advance(int kind, T x, T v) {
    const T dt = T(0.0078125);
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s) {
        v += force_of(kind, x) * dt;
        x += v * dt;
        x = x > T(2) ? T(2) : (x < T(0.95) ? T(0.95) : x);
    }
    return x;
}

__global__ void __launch_bounds__(256) bonds_mixed(const uint8_t* __restrict__ kind, const float2* __restrict__ state,
                                                   float* __restrict__ distance, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 s = state[i];
    distance[i] = advance<float>(kind[i], s.x, s.y - 1.35f);
}

__global__ void __launch_bounds__(256) bonds_sorted(const uint8_t* __restrict__ kind, const float2* __restrict__ state,
                                                    float* __restrict__ distance, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 s = state[i];
    distance[i] = advance<float>(kind[i], s.x, s.y - 1.35f);
}

__global__ void set_kinds(uint8_t* kind, int n, bool sorted) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        kind[i] = sorted ? uint8_t(size_t(i) * kKinds / n) : uint8_t(kind[i] % kKinds);
}

struct Reference {
    const uint8_t* kind;
    const float2* state;
    __device__ double operator()(size_t i) const { return advance<double>(kind[i], state[i].x, double(state[i].y) - 1.35); }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 8388608, 1 << 27);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    uint8_t* kind = device_alloc<uint8_t>(n);
    float2* state = device_alloc<float2>(n);
    float* distance = device_alloc<float>(n);
    fill_uniform(kind, n, key, 0, 1);
    fill_uniform(reinterpret_cast<float*>(state), size_t(n) * 2, key + 1, 0.95f, 1.75f);
    set_kinds<<<1056, 256>>>(kind, n, fix);
    poison(distance, size_t(n) * sizeof(float));
    auto launch = [&] {
        if (fix) bonds_sorted<<<blocks_for(n, 256), 256>>>(kind, state, distance, n);
        else bonds_mixed<<<blocks_for(n, 256), 256>>>(kind, state, distance, n);
    };
    launch_once(launch);
    double error = device_error(distance, n, Reference{kind, state});
    return report("faults/n-potential", median_us(launch, reps), 20.0 * kSteps * n, 0, error, 1e-3);
}
