// A reaction mechanism of twelve species and 3072 reactions, a cell a thread, a few explicit steps. `fault` is generated code with each
// reaction written out and its coefficients as literals; `fix` is a loop over groups of twelve with the coefficients in a table.
#include "h_harness.cuh"

#include <utility>

constexpr int kSpecies = 12, kGroups = 256, kBlock = 128, kSteps = 4;

// Two coefficients of each reaction, between -1/512 and 1/512.
__host__ __device__ constexpr float coefficient(int reaction, int which) {
    unsigned h = unsigned(reaction * 2 + which) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return float(int(h & 1023u) - 512) * (1.0f / 262144.0f);
}

// Reaction q of a group: species i and j make k out of l.
template <int q, class T>
__device__ __forceinline__ void react(const T (&y)[kSpecies], T (&w)[kSpecies], T temperature, T a, T b) {
    constexpr int i = q * 5 % 12, j = (q * 7 + 3) % 12, k = (q * 11 + 1) % 12, l = (q * 5 + 6) % 12;
    T rate = (a * temperature + b) * y[i] * y[j];
    w[k] += rate;
    w[l] -= rate;
}

template <int g, int... q>
__device__ __forceinline__ void written_group(const float (&y)[kSpecies], float (&w)[kSpecies], float temperature,
                                              std::integer_sequence<int, q...>) {
    (react<q>(y, w, temperature, coefficient(g * kSpecies + q, 0), coefficient(g * kSpecies + q, 1)), ...);
}

template <int... g>
__device__ __forceinline__ void all_written(const float (&y)[kSpecies], float (&w)[kSpecies], float temperature, std::integer_sequence<int, g...>) {
    (written_group<g>(y, w, temperature, std::make_integer_sequence<int, kSpecies>{}), ...);
}

template <class T, int... q>
__device__ __forceinline__ void table_group(const T (&y)[kSpecies], T (&w)[kSpecies], T temperature, const float2* c,
                                            std::integer_sequence<int, q...>) {
    (react<q>(y, w, temperature, T(c[q].x), T(c[q].y)), ...);
}

struct Written {
    __device__ __forceinline__ void operator()(const float (&y)[kSpecies], float (&w)[kSpecies], float temperature) const {
        all_written(y, w, temperature, std::make_integer_sequence<int, kGroups>{});
    }
};

template <class T>
struct Tabled {
    const float2* table;
    __device__ __forceinline__ void operator()(const T (&y)[kSpecies], T (&w)[kSpecies], T temperature) const {
#pragma unroll 1
        for (int g = 0; g < kGroups; ++g)
            table_group(y, w, temperature, table + g * kSpecies, std::make_integer_sequence<int, kSpecies>{});
    }
};

template <class T, class Rates>
__device__ __forceinline__ void march(T (&y)[kSpecies], T temperature, const Rates& rates) {
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s) {
        T w[kSpecies] = {};
        rates(y, w, temperature);
#pragma unroll
        for (int i = 0; i < kSpecies; ++i) y[i] += T(0.125) * w[i];
        temperature += T(0.0625) * w[0];
    }
}

template <class Rates>
__device__ __forceinline__ void cell_of(const float* __restrict__ in, const float* __restrict__ heat, float* __restrict__ out, int cells,
                                        const Rates& rates) {
    int c = blockIdx.x * kBlock + threadIdx.x;
    if (c >= cells) return;
    float y[kSpecies];
#pragma unroll
    for (int i = 0; i < kSpecies; ++i) y[i] = in[size_t(i) * cells + c];
    march(y, heat[c], rates);
#pragma unroll
    for (int i = 0; i < kSpecies; ++i) out[size_t(i) * cells + c] = y[i];
}

__global__ void __launch_bounds__(kBlock) kinetics_written(const float* __restrict__ in, const float* __restrict__ heat,
                                                           float* __restrict__ out, int cells) {
    cell_of(in, heat, out, cells, Written{});
}

__global__ void __launch_bounds__(kBlock) kinetics_table(const float* __restrict__ in, const float* __restrict__ heat,
                                                         float* __restrict__ out, int cells) {
    __shared__ __align__(16) float2 table[kGroups * kSpecies];
    for (int r = threadIdx.x; r < kGroups * kSpecies; r += kBlock) table[r] = make_float2(coefficient(r, 0), coefficient(r, 1));
    __syncthreads();
    cell_of(in, heat, out, cells, Tabled<float>{table});
}

__global__ void fill_table(float2* table) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < kGroups * kSpecies) table[r] = make_float2(coefficient(r, 0), coefficient(r, 1));
}

__global__ void reference_kinetics(const float* in, const float* heat, const float2* table, double* out, int cells) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cells) return;
    double y[kSpecies];
    for (int i = 0; i < kSpecies; ++i) y[i] = in[size_t(i) * cells + c];
    march(y, double(heat[c]), Tabled<double>{table});
    for (int i = 0; i < kSpecies; ++i) out[size_t(i) * cells + c] = y[i];
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int cells = positive(args, "cells", 33792, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(cells) * kSpecies;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n), *heat = device_alloc<float>(cells);
    float2* table = device_alloc<float2>(kGroups * kSpecies);
    double* ref = device_alloc<double>(n);
    fill_uniform(in, n, key, 0.25f, 0.75f);
    fill_uniform(heat, cells, key + 1, 0.5f, 1.0f);
    poison(out, n * sizeof(float));
    fill_table<<<blocks_for(kGroups * kSpecies, 256), 256>>>(table);
    unsigned blocks = blocks_for(cells, kBlock);
    auto launch = [&] {
        if (fix) kinetics_table<<<blocks, kBlock>>>(in, heat, out, cells);
        else kinetics_written<<<blocks, kBlock>>>(in, heat, out, cells);
    };
    launch_once(launch);
    reference_kinetics<<<blocks, kBlock>>>(in, heat, table, ref, cells);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, n, Reference{ref});
    return report("faults/n-kinetics", median_us(launch, reps), 6.0 * kGroups * kSpecies * kSteps * cells, 0, error, 1e-4);
}
