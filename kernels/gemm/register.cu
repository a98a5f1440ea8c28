// FP32 GEMM, 8 x 8 outputs a thread in registers: a value read from shared memory serves eight multiplies.
// diagnose: expect no-tensor-core
#include "check.cuh"

constexpr int kM = 128, kN = 128, kK = 16, kThreads = 256;
constexpr int kPad = 4;  // the transposing stores of A would otherwise hit one bank; 4 keeps rows aligned for float4

__global__ void __launch_bounds__(kThreads, 2)
    gemm_register(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float tile_a[kK][kM + kPad];  // transposed: a step of K is a row of both tiles
    __shared__ __align__(16) float tile_b[kK][kN];
    int thread = threadIdx.x, x = thread % 16, y = thread / 16;
    int m0 = blockIdx.y * kM, n0 = blockIdx.x * kN;

    // The thread's part of the next tile waits in registers while this one is multiplied.
    int row_a = thread / 4, col_a = thread % 4 * 4, row_b = thread / 32, col_b = thread % 32 * 4;
    const float* source_a = a + size_t(m0 + row_a) * k + col_a;
    const float* source_b = b + size_t(row_b) * n + n0 + col_b;
    float4 next_a[2], next_b[2];
    auto load = [&](int k0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            next_a[i] = *reinterpret_cast<const float4*>(source_a + size_t(i) * 64 * k + k0);
            next_b[i] = *reinterpret_cast<const float4*>(source_b + size_t(k0 + i * 8) * n);
        }
    };
    float sum[8][8] = {};
    load(0);
    for (int k0 = 0; k0 < k; k0 += kK) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            tile_a[col_a][row_a + i * 64] = next_a[i].x;
            tile_a[col_a + 1][row_a + i * 64] = next_a[i].y;
            tile_a[col_a + 2][row_a + i * 64] = next_a[i].z;
            tile_a[col_a + 3][row_a + i * 64] = next_a[i].w;
            *reinterpret_cast<float4*>(&tile_b[row_b + i * 8][col_b]) = next_b[i];
        }
        __syncthreads();
        if (k0 + kK < k) load(k0 + kK);
#pragma unroll
        for (int kk = 0; kk < kK; ++kk) {
            float left[8], right[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4*>(left + half * 4) = *reinterpret_cast<float4*>(&tile_a[kk][half * 64 + y * 4]);
                *reinterpret_cast<float4*>(right + half * 4) = *reinterpret_cast<float4*>(&tile_b[kk][half * 64 + x * 4]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float* d = sum[i] + half * 4;
            float* to = c + size_t(m0 + i / 4 * 64 + y * 4 + i % 4) * n + n0 + half * 64 + x * 4;
            *reinterpret_cast<float4*>(to) = make_float4(d[0], d[1], d[2], d[3]);
        }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    GemmShape shape(args, 2048);
    auto [m, n, k] = shape;
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(m % kM == 0 && n % kN == 0 && k % kK == 0, "--m, --n, --k must be multiples of 128, 128, 16");

    float* a = device_alloc<float>(size_t(m) * k);
    float* b = device_alloc<float>(size_t(k) * n);
    float* c = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1, 1);
    fill_uniform(b, size_t(k) * n, key + 1, -1, 1);
    poison(c, size_t(m) * n * sizeof(float));

    dim3 grid(n / kN, m / kM);
    auto launch = [&, n = n, k = k] { gemm_register<<<grid, kThreads>>>(a, b, c, n, k); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error(a, b, c, m, n, k, key + 2);
    return report("gemm/register", median_us(launch, runs), shape.flops(), 4 * shape.elements(), error, 1e-5);
}
