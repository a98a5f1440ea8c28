// y = L x for a lower triangular FP32 matrix in full storage, one block a row.
#include "h_harness.cuh"

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) triangular_mv(const float* __restrict__ l, const float* __restrict__ x,
                                                          float* __restrict__ y, int n) {
    __shared__ float part[kThreads / 32];
    int row = blockIdx.x;
    const float* p = l + size_t(row) * n;
    float sum = 0;
#pragma unroll 4
    for (int c = threadIdx.x; c <= row; c += kThreads) sum += p[c] * x[c];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[row] = part[0] + part[1] + part[2] + part[3];
}

struct Reference {
    const float *l, *x;
    int n;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (size_t c = 0; c <= i; ++c) sum += double(l[i * n + c]) * x[c];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 14000, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t cells = size_t(n) * n;
    float *l = device_alloc<float>(cells), *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    fill_uniform(l, cells, key, -1.0f, 1.0f);
    fill_uniform(x, n, key + 1, -1.0f, 1.0f);
    poison(y, n * 4);
    auto launch = [&] { triangular_mv<<<n, kThreads>>>(l, x, y, n); };
    launch_once(launch);
    double error = device_error(y, n, Reference{l, x, n});
    double us = median_us(launch, reps);
    return report("faults/h-triangular", us, 0, 2.0 * double(cells), error, 1e-4);
}
