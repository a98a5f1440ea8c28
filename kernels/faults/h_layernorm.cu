// Layer norm over the last dimension of a row-major FP32 matrix.
#include "h_harness.cuh"

__global__ void layer_norm(const float* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta,
                           float* __restrict__ y, int rows, int cols, float eps) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in = x + size_t(row) * cols;
    float* out = y + size_t(row) * cols;
    float sum = 0, square = 0;
    for (int c = 0; c < cols; ++c) {
        float v = in[c];
        sum += v;
        square += v * v;
    }
    float mean = sum / cols;
    float scale = rsqrtf(square / cols - mean * mean + eps);
    for (int c = 0; c < cols; ++c) out[c] = (in[c] - mean) * scale * gamma[c] + beta[c];
}

constexpr int kVectors = 3;  // float4 a lane: 384 columns

__global__ void layer_norm_warp(const float* __restrict__ x, const float* __restrict__ gamma,
                                const float* __restrict__ beta, float* __restrict__ y, int rows, float eps) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int cols = kVectors * 128;
    const float4* in = reinterpret_cast<const float4*>(x + size_t(row) * cols);
    float4* out = reinterpret_cast<float4*>(y + size_t(row) * cols);
    float4 v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i] = in[i * 32 + lane];
    float sum = 0, square = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        sum += v[i].x + v[i].y + v[i].z + v[i].w;
        square += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    for (int s = 16; s; s >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, s);
        square += __shfl_xor_sync(0xffffffffu, square, s);
    }
    float mean = sum / cols;
    float scale = rsqrtf(square / cols - mean * mean + eps);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        float4 g = reinterpret_cast<const float4*>(gamma)[i * 32 + lane];
        float4 b = reinterpret_cast<const float4*>(beta)[i * 32 + lane];
        float4 r;
        r.x = (v[i].x - mean) * scale * g.x + b.x;
        r.y = (v[i].y - mean) * scale * g.y + b.y;
        r.z = (v[i].z - mean) * scale * g.z + b.z;
        r.w = (v[i].w - mean) * scale * g.w + b.w;
        out[i * 32 + lane] = r;
    }
}

struct Reference {
    const float *x, *gamma, *beta;
    int cols;
    float eps;
    __device__ double operator()(size_t i) const {
        size_t row = i / cols;
        int col = int(i % cols);
        const float* in = x + row * cols;
        double sum = 0, square = 0;
        for (int c = 0; c < cols; ++c) {
            sum += in[c];
            square += double(in[c]) * in[c];
        }
        double mean = sum / cols;
        return (in[col] - mean) / sqrt(square / cols - mean * mean + eps) * gamma[col] + beta[col];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 131072, 1 << 22), cols = positive(args, "cols", 384, 1 << 14);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(!fix || cols == kVectors * 128, "--cols must be 384 for this variant");
    size_t n = size_t(rows) * cols;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    float *gamma = device_alloc<float>(cols), *beta = device_alloc<float>(cols);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(gamma, cols, key + 1, 0.5f, 1.5f);
    fill_uniform(beta, cols, key + 2, -0.5f, 0.5f);
    poison(y, n * sizeof(float));
    const float eps = 1e-5f;
    auto launch = [&] {
        if (fix) layer_norm_warp<<<blocks_for(rows, 6), 192>>>(x, gamma, beta, y, rows, eps);
        else layer_norm<<<blocks_for(rows, 192), 192>>>(x, gamma, beta, y, rows, cols, eps);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{x, gamma, beta, cols, eps});
    double us = median_us(launch, reps);
    return report("faults/h-layernorm", us, 0, 8.0 * double(n), error, 1e-5);
}
