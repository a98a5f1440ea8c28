// Scores of a linear head: y[row] = w[row] . x in FP32. `fault`: a thread a row; `fix`: a warp a row.
#include "h_harness.cuh"

__global__ void __launch_bounds__(256) head_scores(const float* __restrict__ w, const float* __restrict__ x, float* __restrict__ y, int rows,
                                                   int width) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int i = 0; i < width; ++i) sum += w[size_t(row) * width + i] * x[i];
    y[row] = sum;
}

__global__ void __launch_bounds__(256) head_scores_warp(const float4* __restrict__ w, const float4* __restrict__ x, float* __restrict__ y,
                                                        int rows, int vectors) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
#pragma unroll 4
    for (int i = lane; i < vectors; i += 32) {
        float4 a = __ldcs(w + size_t(row) * vectors + i), b = x[i];
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (lane == 0) y[row] = sum;
}

struct Reference {
    const float *w, *x;
    int width;
    __device__ double operator()(size_t row) const {
        double sum = 0;
        for (int i = 0; i < width; ++i) sum += double(w[row * width + i]) * double(x[i]);
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 135168, 1 << 20), width = positive(args, "width", 2048, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % 4 == 0, "--width must be a multiple of 4");
    size_t n = size_t(rows) * width;
    float *w = device_alloc<float>(n), *x = device_alloc<float>(width), *y = device_alloc<float>(rows);
    fill_uniform(w, n, key, -1.0f, 1.0f);
    fill_uniform(x, width, key + 1, -1.0f, 1.0f);
    poison(y, rows * sizeof(float));
    auto launch = [&] {
        if (fix)
            head_scores_warp<<<blocks_for(rows, 8), 256>>>(reinterpret_cast<float4*>(w), reinterpret_cast<float4*>(x), y, rows, width / 4);
        else
            head_scores<<<blocks_for(rows, 256), 256>>>(w, x, y, rows, width);
    };
    launch_once(launch);
    double error = device_error(y, rows, Reference{w, x, width});
    return report("faults/m-head", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-4);
}
