// Softmax over rows of a bf16 matrix, one block a row.
#include "h_harness.cuh"

constexpr int kThreads = 256;

template <bool kMax>
__device__ float block_reduce(float v) {
    __shared__ float part[kThreads / 32];
    for (int s = 16; s; s >>= 1) {
        float o = __shfl_xor_sync(0xffffffffu, v, s);
        v = kMax ? fmaxf(v, o) : v + o;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float r = part[0];
    for (int i = 1; i < kThreads / 32; ++i) r = kMax ? fmaxf(r, part[i]) : r + part[i];
    return r;
}

__global__ void row_softmax(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int cols) {
    const __nv_bfloat16* in = x + size_t(blockIdx.x) * cols;
    __nv_bfloat16* out = y + size_t(blockIdx.x) * cols;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += kThreads) top = fmaxf(top, __bfloat162float(in[c]));
    top = block_reduce<true>(top);
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kThreads) sum += expf(__bfloat162float(in[c]) - top);
    sum = block_reduce<false>(sum);
    float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < cols; c += kThreads)
        out[c] = __float2bfloat16_rn(expf(__bfloat162float(in[c]) - top) * scale);
}

constexpr int kVectors = 3;  // 16-byte vectors a thread: 6144 columns

__global__ void __launch_bounds__(kThreads) row_softmax_wide(const uint4* __restrict__ x, uint4* __restrict__ y) {
    const uint4* in = x + size_t(blockIdx.x) * (kVectors * kThreads);
    uint4* out = y + size_t(blockIdx.x) * (kVectors * kThreads);
    uint4 raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) raw[i] = in[i * kThreads + threadIdx.x];
    float2 v[kVectors][4];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const unsigned word[4] = {raw[i].x, raw[i].y, raw[i].z, raw[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[i][j] = make_float2(__uint_as_float(word[j] << 16), __uint_as_float(word[j] & 0xffff0000u));
            top = fmaxf(top, fmaxf(v[i][j].x, v[i][j].y));
        }
    }
    top = block_reduce<true>(top);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[i][j].x = expf(v[i][j].x - top);
            v[i][j].y = expf(v[i][j].y - top);
            sum += v[i][j].x + v[i][j].y;
        }
    sum = block_reduce<false>(sum);
    float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        unsigned word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            __nv_bfloat162 b = __floats2bfloat162_rn(v[i][j].x * scale, v[i][j].y * scale);
            memcpy(&word[j], &b, 4);
        }
        out[i * kThreads + threadIdx.x] = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

__global__ void reference_sums(const __nv_bfloat16* x, double* sums, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int c = 0; c < cols; ++c) sum += exp(double(__bfloat162float(x[size_t(row) * cols + c])));
    sums[row] = sum;
}

struct Reference {
    const __nv_bfloat16* x;
    const double* sums;
    int cols;
    __device__ double operator()(size_t i) const { return exp(double(__bfloat162float(x[i]))) / sums[i / cols]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 12288, 1 << 18), cols = positive(args, "cols", 6144, 1 << 14);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(!fix || cols == kVectors * kThreads * 8, "--cols must be 6144 for this variant");
    size_t n = size_t(rows) * cols;
    auto *x = device_alloc<__nv_bfloat16>(n), *y = device_alloc<__nv_bfloat16>(n);
    double* sums = device_alloc<double>(rows);
    fill_uniform(x, n, key, -4.0f, 4.0f);
    poison(y, n * 2);
    auto launch = [&] {
        if (fix) row_softmax_wide<<<rows, kThreads>>>(reinterpret_cast<uint4*>(x), reinterpret_cast<uint4*>(y));
        else row_softmax<<<rows, kThreads>>>(x, y, cols);
    };
    launch_once(launch);
    reference_sums<<<blocks_for(rows, 64), 64>>>(x, sums, rows, cols);
    CHECK_CUDA(cudaGetLastError());
    double error = device_error(y, n, Reference{x, sums, cols});
    double us = median_us(launch, reps);
    return report("faults/h-softmax", us, 0, 4.0 * double(n), error, 5e-3);
}
