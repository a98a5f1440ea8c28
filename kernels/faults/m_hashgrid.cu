// One level of a hash-grid encoding (two features in half precision): the eight corners of each point's cell are looked up in a table
// at a hash of their place and blended.
#include "h_harness.cuh"

__host__ __device__ __forceinline__ unsigned corner(unsigned x, unsigned y, unsigned z) {
    return x ^ (y * 2654435761u) ^ (z * 805459861u);
}

__global__ void __launch_bounds__(256) hashgrid_encode(const float* __restrict__ x, const float* __restrict__ y, const float* __restrict__ z,
                                                       const __half2* __restrict__ table, float2* __restrict__ out, int n, float cells,
                                                       unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float px = __fmul_rn(x[i], cells), py = __fmul_rn(y[i], cells), pz = __fmul_rn(z[i], cells);
    float fx = floorf(px), fy = floorf(py), fz = floorf(pz);
    unsigned cx = unsigned(fx), cy = unsigned(fy), cz = unsigned(fz);
    float u = px - fx, v = py - fy, w = pz - fz;
    float2 sum = {0, 0};
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        float2 f = __half22float2(table[corner(cx + (c & 1), cy + (c >> 1 & 1), cz + (c >> 2)) & mask]);
        float weight = (c & 1 ? u : 1 - u) * (c & 2 ? v : 1 - v) * (c & 4 ? w : 1 - w);
        sum.x += weight * f.x;
        sum.y += weight * f.y;
    }
    out[i] = sum;
}

struct Reference {
    const float *x, *y, *z;
    const __half* table;
    float cells;
    unsigned mask;
    __device__ double operator()(size_t j) const {
        size_t i = j / 2;
        double p[3] = {double(__fmul_rn(x[i], cells)), double(__fmul_rn(y[i], cells)), double(__fmul_rn(z[i], cells))}, sum = 0;
        unsigned at[3];
        for (int d = 0; d < 3; ++d) at[d] = unsigned(floor(p[d]));
        for (int c = 0; c < 8; ++c) {
            double weight = 1;
            for (int d = 0; d < 3; ++d) weight *= c >> d & 1 ? p[d] - at[d] : 1 - (p[d] - at[d]);
            unsigned h = corner(at[0] + (c & 1), at[1] + (c >> 1 & 1), at[2] + (c >> 2)) & mask;
            sum += weight * double(__half2float(table[size_t(h) * 2 + j % 2]));
        }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 8388608, 1 << 27), bits = positive(args, "bits", 26, 28), cells = positive(args, "cells", 4096, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float* p[3];
    for (int d = 0; d < 3; ++d) {
        p[d] = device_alloc<float>(n);
        fill_uniform(p[d], n, key + d, 0.0f, 1.0f);
    }
    size_t entries = size_t(1) << bits;
    auto* table = device_alloc<__half>(entries * 2);
    float* out = device_alloc<float>(size_t(n) * 2);
    fill_uniform(table, entries * 2, key + 3, -1.0f, 1.0f);
    poison(out, size_t(n) * 8);
    auto launch = [&] {
        hashgrid_encode<<<blocks_for(n, 256), 256>>>(p[0], p[1], p[2], reinterpret_cast<__half2*>(table), reinterpret_cast<float2*>(out), n,
                                                     float(cells), unsigned(entries - 1));
    };
    launch_once(launch);
    double error = device_error(out, size_t(n) * 2, Reference{p[0], p[1], p[2], table, float(cells), unsigned(entries - 1)});
    return report("faults/m-hashgrid", median_us(launch, reps), 0, 52.0 * n, error, 1e-4);
}
