// Test particles around a sun and a planet, by an explicit Runge-Kutta method of six stages. `fault` takes the number of stages from
// the tableau at run time, so that the slopes are an indexed array; `fix` has it as a template argument.
#include "h_harness.cuh"

constexpr int kDim = 6, kMost = 7, kBlock = 256;

struct Tableau {
    int stages;
    float a[kMost][kMost], b[kMost];
};

struct Planet {
    float x, y, z, mass;
};

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return 1.0 / sqrt(x); }

template <class T>
__device__ __forceinline__ void slope(const T y[kDim], T k[kDim], const Planet& planet) {
    T dx = T(planet.x) - y[0], dy = T(planet.y) - y[1], dz = T(planet.z) - y[2];
    T r = inverse_root(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + T(0.01)), d = inverse_root(dx * dx + dy * dy + dz * dz + T(0.01));
    T sun = -r * r * r, pull = T(planet.mass) * d * d * d;
    k[0] = y[3];
    k[1] = y[4];
    k[2] = y[5];
    k[3] = sun * y[0] + pull * dx;
    k[4] = sun * y[1] + pull * dy;
    k[5] = sun * y[2] + pull * dz;
}

__global__ void __launch_bounds__(kBlock) orbits_runtime(const float* __restrict__ in, float* __restrict__ out, int n, int steps, float h,
                                                         const __grid_constant__ Tableau tableau, Planet planet) {
    int i = blockIdx.x * kBlock + threadIdx.x;
    if (i >= n) return;
    float y[kDim], trial[kDim], k[kMost][kDim];
    for (int d = 0; d < kDim; ++d) y[d] = in[size_t(d) * n + i];
    for (int t = 0; t < steps; ++t) {
        for (int s = 0; s < tableau.stages; ++s) {
            for (int d = 0; d < kDim; ++d) trial[d] = y[d];
            for (int j = 0; j < s; ++j)
                for (int d = 0; d < kDim; ++d) trial[d] += h * tableau.a[s][j] * k[j][d];
            slope(trial, k[s], planet);
        }
        for (int s = 0; s < tableau.stages; ++s)
            for (int d = 0; d < kDim; ++d) y[d] += h * tableau.b[s] * k[s][d];
    }
    for (int d = 0; d < kDim; ++d) out[size_t(d) * n + i] = y[d];
}

template <int kStages, class T>
__device__ __forceinline__ void step(T y[kDim], T h, const Tableau& tableau, const Planet& planet) {
    T trial[kDim], k[kStages][kDim];
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
#pragma unroll
        for (int d = 0; d < kDim; ++d) trial[d] = y[d];
#pragma unroll
        for (int j = 0; j < s; ++j)
#pragma unroll
            for (int d = 0; d < kDim; ++d) trial[d] += h * T(tableau.a[s][j]) * k[j][d];
        slope(trial, k[s], planet);
    }
#pragma unroll
    for (int s = 0; s < kStages; ++s)
#pragma unroll
        for (int d = 0; d < kDim; ++d) y[d] += h * T(tableau.b[s]) * k[s][d];
}

template <int kStages>
__global__ void __launch_bounds__(kBlock) orbits_static(const float* __restrict__ in, float* __restrict__ out, int n, int steps, float h,
                                                        const __grid_constant__ Tableau tableau, Planet planet) {
    int i = blockIdx.x * kBlock + threadIdx.x;
    if (i >= n) return;
    float y[kDim];
    for (int d = 0; d < kDim; ++d) y[d] = in[size_t(d) * n + i];
    for (int t = 0; t < steps; ++t) step<kStages>(y, h, tableau, planet);
    for (int d = 0; d < kDim; ++d) out[size_t(d) * n + i] = y[d];
}

__global__ void reference_orbits(const float* in, double* out, int n, int steps, double h, const __grid_constant__ Tableau tableau,
                                 Planet planet) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double y[kDim];
    for (int d = 0; d < kDim; ++d) y[d] = in[size_t(d) * n + i];
    for (int t = 0; t < steps; ++t) step<6>(y, h, tableau, planet);
    for (int d = 0; d < kDim; ++d) out[size_t(d) * n + i] = y[d];
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 540672, 1 << 24), steps = positive(args, "steps", 64, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    // Fehlberg's six stages, fifth order.
    const Tableau tableau{6,
                          {{},
                           {1.0f / 4},
                           {3.0f / 32, 9.0f / 32},
                           {1932.0f / 2197, -7200.0f / 2197, 7296.0f / 2197},
                           {439.0f / 216, -8.0f, 3680.0f / 513, -845.0f / 4104},
                           {-8.0f / 27, 2.0f, -3544.0f / 2565, 1859.0f / 4104, -11.0f / 40}},
                          {16.0f / 135, 0.0f, 6656.0f / 12825, 28561.0f / 56430, -9.0f / 50, 2.0f / 55}};
    const Planet planet{1.5f, 0.5f, 0.0f, 0.02f};
    const float h = 0.01f;
    size_t values = size_t(n) * kDim;
    float *in = device_alloc<float>(values), *out = device_alloc<float>(values);
    double* ref = device_alloc<double>(values);
    fill_uniform(in, values, key, 0.4f, 0.9f);
    poison(out, values * sizeof(float));
    unsigned blocks = blocks_for(n, kBlock);
    auto launch = [&] {
        if (fix) orbits_static<6><<<blocks, kBlock>>>(in, out, n, steps, h, tableau, planet);
        else orbits_runtime<<<blocks, kBlock>>>(in, out, n, steps, h, tableau, planet);
    };
    launch_once(launch);
    reference_orbits<<<blocks, kBlock>>>(in, ref, n, steps, h, tableau, planet);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, values, Reference{ref});
    return report("faults/n-butcher", median_us(launch, reps), 330.0 * n * steps, 0, error, 1e-4);
}
