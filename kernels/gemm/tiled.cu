// FP32 GEMM on 32 x 32 tiles in shared memory: global memory is read 32 times less, shared memory twice a multiply.
// diagnose: expect smem-reload
#include "check.cuh"

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile)
    gemm_tiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float tile_a[kTile][kTile];
    __shared__ float tile_b[kTile][kTile];
    int x = threadIdx.x, y = threadIdx.y;
    int col = blockIdx.x * kTile + x;
    int row = blockIdx.y * kTile + y;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += kTile) {
        tile_a[y][x] = row < m && k0 + x < k ? a[size_t(row) * k + k0 + x] : 0.f;
        tile_b[y][x] = k0 + y < k && col < n ? b[size_t(k0 + y) * n + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTile; ++i) sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < m && col < n) c[size_t(row) * n + col] = sum;
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

    dim3 block(kTile, kTile), grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    auto launch = [&, m = m, n = n, k = k] { gemm_tiled<<<grid, block>>>(a, b, c, m, n, k); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error(a, b, c, m, n, k, key + 2);
    return report("gemm/tiled", median_us(launch, runs), shape.flops(), 4 * shape.elements(), error, 1e-5);
}
