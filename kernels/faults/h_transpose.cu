// Out-of-place transpose of an FP32 matrix through a 64x64 tile in shared memory.
#include "h_harness.cuh"

constexpr int kTile = 64, kStep = 8;

template <int kPitch>
__global__ void transpose(const float* __restrict__ in, float* __restrict__ out, int rows, int cols) {
    __shared__ float tile[kTile][kPitch];
    int x = blockIdx.x * kTile + threadIdx.x, y0 = blockIdx.y * kTile;
#pragma unroll
    for (int j = threadIdx.y; j < kTile; j += kStep)
        if (x < cols && y0 + j < rows) tile[j][threadIdx.x] = in[size_t(y0 + j) * cols + x];
    __syncthreads();
    int u = y0 + threadIdx.x, v0 = blockIdx.x * kTile;
#pragma unroll
    for (int j = threadIdx.y; j < kTile; j += kStep)
        if (u < rows && v0 + j < cols) out[size_t(v0 + j) * rows + u] = tile[threadIdx.x][j];
}

struct Reference {
    const float* in;
    int rows, cols;
    __device__ double operator()(size_t i) const { return in[(i % rows) * cols + i / rows]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 6144, 32768), cols = positive(args, "cols", 5120, 32768);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(rows) * cols;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * sizeof(float));
    dim3 block(kTile, kStep), grid(blocks_for(cols, kTile), blocks_for(rows, kTile));
    auto launch = [&] {
        if (fix) transpose<kTile + 1><<<grid, block>>>(in, out, rows, cols);
        else transpose<kTile><<<grid, block>>>(in, out, rows, cols);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, rows, cols});
    double us = median_us(launch, reps);
    return report("faults/h-transpose", us, 0, 8.0 * double(n), error, 0);
}
