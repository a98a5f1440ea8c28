// Sums of the columns of a row-major FP32 matrix (a bias gradient).
#include "h_harness.cuh"

__global__ void column_sum(const float* __restrict__ x, float* __restrict__ sums, int rows, int cols) {
    __shared__ float part[8];
    int col = blockIdx.x;
    float sum = 0;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) sum += x[size_t(r) * cols + col];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; ++w) sum += part[w];
        sums[col] = sum;
    }
}

// Every block adds up a slab of rows; a thread has four neighbouring columns.
__global__ void column_sum_slab(const float4* __restrict__ x, float* __restrict__ sums, int rows, int vectors) {
    int first = int((long long)rows * blockIdx.x / gridDim.x), last = int((long long)rows * (blockIdx.x + 1) / gridDim.x);
    for (int v = threadIdx.x; v < vectors; v += blockDim.x) {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int r = first; r < last; ++r) {
            float4 q = x[size_t(r) * vectors + v];
            sum.x += q.x;
            sum.y += q.y;
            sum.z += q.z;
            sum.w += q.w;
        }
        atomicAdd(sums + v * 4 + 0, sum.x);
        atomicAdd(sums + v * 4 + 1, sum.y);
        atomicAdd(sums + v * 4 + 2, sum.z);
        atomicAdd(sums + v * 4 + 3, sum.w);
    }
}

struct Reference {
    const float* x;
    int rows, cols;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int r = 0; r < rows; ++r) sum += x[size_t(r) * cols + i];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 49152, 1 << 22), cols = positive(args, "cols", 640, 1 << 14);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(cols % 4 == 0, "--cols must be a multiple of 4");
    size_t n = size_t(rows) * cols;
    float *x = device_alloc<float>(n), *sums = device_alloc<float>(cols);
    fill_uniform(x, n, key, -0.5f, 1.0f);
    poison(sums, cols * sizeof(float));
    auto launch = [&] {
        if (fix) {
            CHECK_CUDA(cudaMemsetAsync(sums, 0, cols * sizeof(float)));
            column_sum_slab<<<1056, 160>>>(reinterpret_cast<float4*>(x), sums, rows, cols / 4);
        } else {
            column_sum<<<cols, 256>>>(x, sums, rows, cols);
        }
    };
    launch_once(launch);
    double error = device_error(sums, cols, Reference{x, rows, cols});
    double us = median_us(launch, reps);
    return report("faults/h-colsum", us, 0, 4.0 * double(n), error, 1e-5);
}
