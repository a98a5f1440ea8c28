// Removes a camera's lens distortion (radial and tangential) from n points by fixed-point iteration. --variant sets the literals' type.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kTurns = 12;

__host__ __device__ inline double2 straighten(double px, double py) {
    double x = px, y = py;
    for (int i = 0; i < kTurns; ++i) {
        double r2 = x * x + y * y, radial = 1.0 + r2 * (-0.061 + r2 * (0.017 + r2 * -0.0025));
        double dx = 0.0012 * 2.0 * x * y - 0.0007 * (r2 + 2.0 * x * x), dy = 0.0012 * (r2 + 2.0 * y * y) - 0.0007 * 2.0 * x * y;
        double inverse = 2.0 - radial;
        x = (px - dx) * inverse;
        y = (py - dy) * inverse;
    }
    return make_double2(x, y);
}

__global__ void __launch_bounds__(256) undistort(const float2* __restrict__ in, float2* __restrict__ out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 p = in[i];
    auto x = p.x * 1.0, y = p.y * 1.0;
#pragma unroll
    for (int k = 0; k < kTurns; ++k) {
        auto r2 = x * x + y * y, radial = 1.0 + r2 * (-0.061 + r2 * (0.017 + r2 * -0.0025));
        auto dx = 0.0012 * 2.0 * x * y - 0.0007 * (r2 + 2.0 * x * x), dy = 0.0012 * (r2 + 2.0 * y * y) - 0.0007 * 2.0 * x * y;
        auto inverse = 2.0 - radial;
        x = (p.x - dx) * inverse;
        y = (p.y - dy) * inverse;
    }
    out[i] = make_float2(x, y);
}

__global__ void __launch_bounds__(256) undistort_single(const float2* __restrict__ in, float2* __restrict__ out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float2 p = in[i];
    auto x = p.x * 1.0f, y = p.y * 1.0f;
#pragma unroll
    for (int k = 0; k < kTurns; ++k) {
        auto r2 = x * x + y * y, radial = 1.0f + r2 * (-0.061f + r2 * (0.017f + r2 * -0.0025f));
        auto dx = 0.0012f * 2.0f * x * y - 0.0007f * (r2 + 2.0f * x * x), dy = 0.0012f * (r2 + 2.0f * y * y) - 0.0007f * 2.0f * x * y;
        auto inverse = 2.0f - radial;
        x = (p.x - dx) * inverse;
        y = (p.y - dy) * inverse;
    }
    out[i] = make_float2(x, y);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 33554432, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float *in = device_alloc<float>(size_t(n) * 2), *out = device_alloc<float>(size_t(n) * 2);
    fill_uniform(in, size_t(n) * 2, key, -0.9f, 0.9f);
    poison(out, size_t(n) * 2 * sizeof(float));
    auto kernel = fix ? undistort_single : undistort;
    auto launch = [&] { kernel<<<blocks_for(n, 256), 256>>>(reinterpret_cast<float2*>(in), reinterpret_cast<float2*>(out), n); };
    launch_once(launch);
    std::vector<float> from = to_host(in, size_t(n) * 2);
    auto wanted = [&](size_t i) {
        double2 p = straighten(from[i / 2 * 2], from[i / 2 * 2 + 1]);
        return i % 2 ? p.y : p.x;
    };
    double error = sampled_error(to_host(out, size_t(n) * 2), wanted, 100000);
    return report("faults/k-lens", median_us(launch, reps), 28.0 * kTurns * n, 0, error, 1e-5);
}
