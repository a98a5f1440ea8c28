// FP32 GEMM, one thread an output: every operand comes from global memory, every time.
// diagnose: expect global-reload
#include "check.cuh"

__global__ void gemm_naive(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                           int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[size_t(row) * k + i] * b[size_t(i) * n + col];
    c[size_t(row) * n + col] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    GemmShape shape(args, 2048);
    auto [m, n, k] = shape;
    int runs = repeats(args);
    auto key = seed(args);
    args.done();

    float* a = device_alloc<float>(size_t(m) * k);
    float* b = device_alloc<float>(size_t(k) * n);
    float* c = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1, 1);
    fill_uniform(b, size_t(k) * n, key + 1, -1, 1);
    poison(c, size_t(m) * n * sizeof(float));

    dim3 block(32, 8), grid((n + 31) / 32, (m + 7) / 8);
    auto launch = [&, m = m, n = n, k = k] { gemm_naive<<<grid, block>>>(a, b, c, m, n, k); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error(a, b, c, m, n, k, key + 2);
    return report("gemm/naive", median_us(launch, runs), shape.flops(), 4 * shape.elements(), error, 1e-5);
}
