// Gates rows of 256 by their likeness to a learned vector: y = x sigmoid(scale cos(x, u)).
#include "p_harness.cuh"

constexpr int kWidth = 256;

__device__ __forceinline__ float gate(float dot, float square, float scale) {
    float likeness = dot * rsqrtf(fmaxf(square, 1e-12f));
    return __fdividef(1.0f, 1.0f + __expf(-scale * likeness));
}

// Sum over the block by halving.
__device__ float tree_sum(float* scratch, float v) {
    int t = threadIdx.x;
    scratch[t] = v;
    __syncthreads();
    for (int half = kWidth / 2; half > 0; half /= 2) {
        if (t < half) scratch[t] += scratch[t + half];
        __syncthreads();
    }
    float sum = scratch[0];
    __syncthreads();
    return sum;
}

__global__ void __launch_bounds__(256) cosine_gate(const float* __restrict__ x, const float* __restrict__ u, float* __restrict__ y, float scale) {
    __shared__ float scratch[kWidth];
    size_t at = size_t(blockIdx.x) * kWidth + threadIdx.x;
    float v = x[at];
    float dot = tree_sum(scratch, v * u[threadIdx.x]);
    float square = tree_sum(scratch, v * v);
    y[at] = v * gate(dot, square, scale);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
    return v;
}

// A warp a row, eight rows a block.
__global__ void __launch_bounds__(256) cosine_gate_warp(const float* __restrict__ x, const float* __restrict__ u, float* __restrict__ y,
                                                        float scale) {
    int lane = threadIdx.x % 32;
    size_t row = size_t(blockIdx.x) * 8 + threadIdx.x / 32;
    const float4 *from = reinterpret_cast<const float4*>(x + row * kWidth), *with = reinterpret_cast<const float4*>(u);
    float4 v[2], w[2];
    float dot = 0, square = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        v[i] = from[lane + 32 * i];
        w[i] = with[lane + 32 * i];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        dot += v[i].x * w[i].x + v[i].y * w[i].y + v[i].z * w[i].z + v[i].w * w[i].w;
        square += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    float g = gate(warp_sum(dot), warp_sum(square), scale);
    float4* to = reinterpret_cast<float4*>(y + row * kWidth);
#pragma unroll
    for (int i = 0; i < 2; ++i) to[lane + 32 * i] = make_float4(v[i].x * g, v[i].y * g, v[i].z * g, v[i].w * g);
}

struct Reference {
    const float *x, *u;
    float scale;
    __device__ double operator()(size_t i) const {
        const float* row = x + i / kWidth * kWidth;
        double dot = 0, square = 0;
        for (int k = 0; k < kWidth; ++k) {
            dot += double(row[k]) * u[k];
            square += double(row[k]) * row[k];
        }
        return x[i] / (1 + exp(-double(scale) * dot / sqrt(square)));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 524288, 1 << 21);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % 8 == 0, "--rows must be a multiple of 8");
    size_t n = size_t(rows) * kWidth;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n), *u = device_alloc<float>(kWidth);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(u, size_t(kWidth), key + 1, -0.1f, 0.1f);
    poison(y, n * 4);
    auto launch = [&] {
        if (fix) cosine_gate_warp<<<rows / 8, 256>>>(x, u, y, 8.0f);
        else cosine_gate<<<rows, 256>>>(x, u, y, 8.0f);
    };
    launch_once(launch);
    double error = sample_error(y, n, Reference{x, u, 8.0f}, 1 << 20);
    return report("faults/p-cosgate", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
