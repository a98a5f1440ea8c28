// For every point the sum of (x_i - x_j)^4 over the points before it: the work grows with i. A block takes the points
// of one stretch, or each thread one point from the front and its mirror from the back.
#include "memory.cuh"

__device__ float sum_before(const float* __restrict__ x, unsigned i) {
    float xi = x[i], total[4] = {};
    unsigned j = 0, last = i / 32 * 32;
    float4 v[8], next[8];  // the same address in all lanes: broadcasts; the next 32 values travel while these are used
    auto load = [&](float4 (&to)[8], unsigned from) {
#pragma unroll
        for (int q = 0; q < 8; ++q) to[q] = *reinterpret_cast<const float4*>(x + from + 4 * q);
    };
    load(v, 0);
#pragma unroll 1
    for (; j < last; j += 32) {
        load(next, min(j + 32, last));
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            float d[4] = {xi - v[q].x, xi - v[q].y, xi - v[q].z, xi - v[q].w};
#pragma unroll
            for (int k = 0; k < 4; ++k) total[k] = fmaf(d[k] * d[k], d[k] * d[k], total[k]);
            v[q] = next[q];
        }
    }
    for (; j < i; ++j) {
        float d = xi - x[j];
        total[0] = fmaf(d * d, d * d, total[0]);
    }
    return (total[0] + total[1]) + (total[2] + total[3]);
}

// The last block does twice the average.
__global__ void __launch_bounds__(512) energy_stretches(const float* __restrict__ x, float* __restrict__ out) {
    unsigned i = blockIdx.x * 1024 + threadIdx.x;
    out[i] = sum_before(x, i);
    out[i + 512] = sum_before(x, i + 512);
}

__global__ void __launch_bounds__(512) energy_mirrored(const float* __restrict__ x, float* __restrict__ out) {
    unsigned i = blockIdx.x * 512 + threadIdx.x, mirror = gridDim.x * 1024 - 1 - i;
    out[i] = sum_before(x, i);
    out[mirror] = sum_before(x, mirror);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 132 * 1024, 1024);
    args.done();
    auto x = device_alloc<float>(n), out = device_alloc<float>(n);
    fill_uniform(x, n, s, 0, 1);
    poison(out, 4 * n);
    auto launch = [&] {
        if (fault) energy_stretches<<<unsigned(n / 1024), 512>>>(x, out);
        else energy_mirrored<<<unsigned(n / 1024), 512>>>(x, out);
    };
    run_once(launch);
    auto h = to_host(x, n);
    double p[5] = {};  // sums of x^k over the points before i: the binomial theorem gives the sum of fourth powers
    double error = error_against(out, n, [&](size_t i) {
        double v = h[i], v2 = v * v;
        double total = p[4] - 4 * v * p[3] + 6 * v2 * p[2] - 4 * v2 * v * p[1] + v2 * v2 * p[0];
        p[0] += 1, p[1] += v, p[2] += v2, p[3] += v2 * v, p[4] += v2 * v2;
        return total;
    });
    return report(fault ? "faults/energy-stretches" : "faults/energy-mirrored", median_us(launch, r),
                  2.0 * double(n) * double(n), 8.0 * n, error, 1e-4);
}
