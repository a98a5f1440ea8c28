// A polynomial of degree 12 at every element of an FP32 vector, by Horner's rule.
#include "h_harness.cuh"

__global__ void polynomial(const float4* __restrict__ x, float4* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 q = x[i];
    float v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        float t = v[j], r = 0.0117;
        r = r * t - 0.0232;
        r = r * t + 0.0421;
        r = r * t - 0.0613;
        r = r * t + 0.0839;
        r = r * t - 0.1107;
        r = r * t + 0.1423;
        r = r * t - 0.1817;
        r = r * t + 0.2371;
        r = r * t - 0.3129;
        r = r * t + 0.4513;
        r = r * t - 0.7071;
        v[j] = r * t + 1.0013;
    }
    y[i] = make_float4(v[0], v[1], v[2], v[3]);
}

__global__ void polynomial_single(const float4* __restrict__ x, float4* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 q = x[i];
    float v[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        float t = v[j], r = 0.0117f;
        r = r * t - 0.0232f;
        r = r * t + 0.0421f;
        r = r * t - 0.0613f;
        r = r * t + 0.0839f;
        r = r * t - 0.1107f;
        r = r * t + 0.1423f;
        r = r * t - 0.1817f;
        r = r * t + 0.2371f;
        r = r * t - 0.3129f;
        r = r * t + 0.4513f;
        r = r * t - 0.7071f;
        v[j] = r * t + 1.0013f;
    }
    y[i] = make_float4(v[0], v[1], v[2], v[3]);
}

struct Reference {
    const float* x;
    __device__ double operator()(size_t i) const {
        const double c[13] = {0.0117,  -0.0232, 0.0421,  -0.0613, 0.0839,  -0.1107, 0.1423,
                              -0.1817, 0.2371,  -0.3129, 0.4513,  -0.7071, 1.0013};
        double r = c[0];
        for (int k = 1; k < 13; ++k) r = r * x[i] + c[k];
        return r;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 33000000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    poison(y, size_t(n) * 4);
    auto *from = reinterpret_cast<float4*>(x), *to = reinterpret_cast<float4*>(y);
    auto launch = [&] {
        if (fix) polynomial_single<<<blocks_for(n / 4, 288), 288>>>(from, to, n / 4);
        else polynomial<<<blocks_for(n / 4, 288), 288>>>(from, to, n / 4);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{x});
    double us = median_us(launch, reps);
    return report("faults/h-polynomial", us, 24.0 * n, 0, error, 1e-5);
}
