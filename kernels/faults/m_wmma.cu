// C (m x n, FP32) = A (m x k) B (n x k)^T in half precision through the WMMA API, 128 x 128 tiles, 8 warps of 64 x 32.
// `fault` loads each step of K through registers into one buffer; `fix` keeps four buffers filled with cp.async.
#include <mma.h>

#include "../mma.cuh"
#include "h_harness.cuh"

using namespace nvcuda;

constexpr int kTileK = 32, kLd = kTileK + 8, kStages = 4, kOperand = 128 * kLd;

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

__device__ __forceinline__ void multiply_step(const __half* a, const __half* b, Accumulator (&acc)[4][2], int wm, int wn) {
#pragma unroll
    for (int k = 0; k < kTileK; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[4];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(fa[i], a + (wm + 16 * i) * kLd + k, kLd);
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(fb[j], b + (wn + 16 * j) * kLd + k, kLd);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
    }
}

template <bool ASYNC>
__global__ void __launch_bounds__(256) wmma_linear(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c,
                                                   int n, int k) {
    extern __shared__ __align__(128) __half buffers[];
    int warp = threadIdx.x / 32, wm = warp % 2 * 64, wn = warp / 2 * 32;
    const __half *ga = a + size_t(blockIdx.y) * 128 * k, *gb = b + size_t(blockIdx.x) * 128 * k;
    Accumulator acc[4][2];
    for (auto& row : acc)
        for (auto& fragment : row) wmma::fill_fragment(fragment, 0.0f);
    int row = threadIdx.x / 4, column = threadIdx.x % 4 * 8, steps = k / kTileK;
    if constexpr (ASYNC) {
        auto load = [&](int step) {
            __half* to = buffers + step % kStages * 2 * kOperand;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int r = row + 64 * i;
                copy_async_16(shared_address(to + r * kLd + column), ga + size_t(r) * k + step * kTileK + column);
                copy_async_16(shared_address(to + kOperand + r * kLd + column), gb + size_t(r) * k + step * kTileK + column);
            }
        };
        for (int s = 0; s < kStages - 1; ++s) {
            if (s < steps) load(s);
            copy_commit();
        }
        for (int step = 0; step < steps; ++step) {
            copy_wait<kStages - 2>();
            __syncthreads();
            if (step + kStages - 1 < steps) load(step + kStages - 1);
            copy_commit();
            const __half* at = buffers + step % kStages * 2 * kOperand;
            multiply_step(at, at + kOperand, acc, wm, wn);
        }
    } else {
        for (int step = 0; step < steps; ++step) {
            uint4 va[2], vb[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                va[i] = *reinterpret_cast<const uint4*>(ga + size_t(row + 64 * i) * k + step * kTileK + column);
                vb[i] = *reinterpret_cast<const uint4*>(gb + size_t(row + 64 * i) * k + step * kTileK + column);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                *reinterpret_cast<uint4*>(buffers + (row + 64 * i) * kLd + column) = va[i];
                *reinterpret_cast<uint4*>(buffers + kOperand + (row + 64 * i) * kLd + column) = vb[i];
            }
            __syncthreads();
            multiply_step(buffers, buffers + kOperand, acc, wm, wn);
            __syncthreads();
        }
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (size_t(blockIdx.y) * 128 + wm + 16 * i) * n + size_t(blockIdx.x) * 128 + wn + 16 * j,
                                    acc[i][j], n, wmma::mem_row_major);
}

constexpr int kChecked = 65536;

struct Reference {
    const __half *a, *b;
    int m, n, k;
    unsigned long long key;
    __host__ __device__ size_t where(size_t i) const { return diagnose_hash(key + i) % (size_t(m) * n); }
    __device__ double operator()(size_t i) const {
        size_t at = where(i), row = at / n, column = at % n;
        double sum = 0;
        for (int x = 0; x < k; ++x) sum += double(__half2float(a[row * k + x])) * double(__half2float(b[column * k + x]));
        return sum;
    }
};

__global__ void take(const float* c, float* out, Reference ref) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kChecked) out[i] = c[ref.where(i)];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int m = positive(args, "m", 4096, 32768), n = positive(args, "n", 4224, 32768), k = positive(args, "k", 4096, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && k % kTileK == 0, "m and n must be multiples of 128, k of 32");
    auto *a = device_alloc<__half>(size_t(m) * k), *b = device_alloc<__half>(size_t(n) * k);
    float *c = device_alloc<float>(size_t(m) * n), *sample = device_alloc<float>(kChecked);
    fill_uniform(a, size_t(m) * k, key, -1.0f, 1.0f);
    fill_uniform(b, size_t(n) * k, key + 1, -1.0f, 1.0f);
    poison(c, size_t(m) * n * sizeof(float));
    auto kernel = fix ? wmma_linear<true> : wmma_linear<false>;
    int shared = (fix ? kStages : 1) * 2 * kOperand * int(sizeof(__half));
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    auto launch = [&] { kernel<<<dim3(n / 128, m / 128), 256, shared>>>(a, b, c, n, k); };
    launch_once(launch);
    Reference ref{a, b, m, n, k, diagnose_hash(key + 2)};
    launch_once([&] { take<<<kChecked / 256, 256>>>(c, sample, ref); });
    double error = device_error(sample, kChecked, ref);
    return report("faults/m-wmma", median_us(launch, reps), 2.0 * m * n * k, 0, error, 1e-4);
}
