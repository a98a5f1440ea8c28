// Calibration of an 8-bit format: squared rounding error of each group of 128 values under 32 candidate scales (a lane each).
#include "pair.cuh"
constexpr int kGroup = 128, kWarps = 8;

// Rounds to the nearest integer through the integer type: two trips through the conversion unit.
struct Typed {
    static __device__ float round(float v) { return float(__float2int_rn(v)); }
};
// 1.5 2^23 leaves no fraction bits: adding and subtracting it rounds the same way, on the FMA pipe.
struct Biased {
    static __device__ float round(float v) { return __fadd_rn(__fadd_rn(v, 12582912.f), -12582912.f); }
};
template <class Round>
__device__ void try_scales(const float* x, const float* step, float* error, int groups) {
    __shared__ float4 tile[kWarps][kGroup / 4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.x * kWarps + warp;
    if (group >= groups) return;
    tile[warp][lane] = reinterpret_cast<const float4*>(x + size_t(group) * kGroup)[lane];
    __syncwarp();
    float d = step[lane], inverse = 1.0f / d, sum = 0;
#pragma unroll 8
    for (int j = 0; j < kGroup / 4; ++j) {
        float4 q = tile[warp][j];
        float v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float r = fmaf(-Round::round(v[e] * inverse), d, v[e]);
            sum = fmaf(r, r, sum);
        }
    }
    error[size_t(group) * 32 + lane] = sum;
}
__global__ void __launch_bounds__(256) scales_typed(const float* x, const float* step, float* error, int groups) {
    try_scales<Typed>(x, step, error, groups);
}
__global__ void __launch_bounds__(256) scales_biased(const float* x, const float* step, float* error, int groups) {
    try_scales<Biased>(x, step, error, groups);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int groups = int(args.get("groups", 262144)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(groups > 0, "--groups must be positive");
    size_t n = size_t(groups) * kGroup;
    float *x = device_alloc<float>(n), *step = device_alloc<float>(32), *error = device_alloc<float>(size_t(groups) * 32);
    fill_uniform(x, n, key, -1.f, 1.f);
    fill_uniform(step, 32, key + 1, 0.01f, 0.1f);
    auto hx = to_host(x, n), hs = to_host(step, 32);
    auto reference = [&](size_t i) {
        double sum = 0, d = hs[i % 32];
        for (int j = 0; j < kGroup; ++j) {
            double v = hx[i / 32 * kGroup + j], r = v - std::nearbyint(v / d) * d;
            sum += r * r;
        }
        return sum;
    };
    auto launch = [&] {
        int blocks = (groups + kWarps - 1) / kWarps;
        if (fault) scales_typed<<<blocks, 256>>>(x, step, error, groups);
        else scales_biased<<<blocks, 256>>>(x, step, error, groups);
    };
    return run_checked(fault ? "faults/scales-typed" : "faults/scales-biased", reps, launch, error, size_t(groups) * 32, reference,
                       6.0 * 32 * n, 4.0 * n + 128.0 * groups, 1e-3);
}
