// Linear layer of halves with float results, x (m x k) times w (k x n), 128 x 128 a block, steps of 32, double-buffered through registers.
// --variant fault: packed half products, 8 x 8 a thread, partial sums of 32 moved to float; fix: WMMA on the same shared tiles.
#include <mma.h>

#include "p_harness.cuh"

constexpr int kStep = 32, kPitchA = kStep + 8, kPitchB = 128 + 8;  // halves; the pads keep 16-byte pieces aligned

struct Tiles {
    __half a[2][128 * kPitchA], b[2][kStep * kPitchB];
};

struct Fetch {  // a thread's share of the next step: 2 x 16 bytes of each operand
    uint4 a[2], b[2];
    __device__ __forceinline__ void load(const __half* x, const __half* w, int k, int n, int step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int at = i * 256 + int(threadIdx.x);
            a[i] = *reinterpret_cast<const uint4*>(x + size_t(blockIdx.y * 128 + at / 4) * k + step * kStep + at % 4 * 8);
            b[i] = *reinterpret_cast<const uint4*>(w + size_t(step * kStep + at / 16) * n + blockIdx.x * 128 + at % 16 * 8);
        }
    }
    __device__ __forceinline__ void store(Tiles& t, int buffer) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int at = i * 256 + int(threadIdx.x);
            *reinterpret_cast<uint4*>(&t.a[buffer][at / 4 * kPitchA + at % 4 * 8]) = a[i];
            *reinterpret_cast<uint4*>(&t.b[buffer][at / 16 * kPitchB + at % 16 * 8]) = b[i];
        }
    }
};

__global__ void __launch_bounds__(256) linear_half2(const __half* __restrict__ x, const __half* __restrict__ w, float* __restrict__ out, int n, int k) {
    __shared__ __align__(16) Tiles tiles;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, steps = k / kStep;
    float sum[8][8] = {};
    Fetch fetch;
    fetch.load(x, w, k, n, 0);
    fetch.store(tiles, 0);
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        if (s + 1 < steps) fetch.load(x, w, k, n, s + 1);
        __half2 part[8][4];
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) part[i][j] = __float2half2_rn(0.0f);
#pragma unroll
        for (int q = 0; q < kStep; q += 2) {
            __half2 a[8], b[2][4];
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const __half2*>(&tiles.a[s & 1][(ty * 8 + i) * kPitchA + q]);
#pragma unroll
            for (int h = 0; h < 2; ++h) *reinterpret_cast<uint4*>(b[h]) = *reinterpret_cast<const uint4*>(&tiles.b[s & 1][(q + h) * kPitchB + tx * 8]);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    part[i][j] = __hfma2(__low2half2(a[i]), b[0][j], part[i][j]);
                    part[i][j] = __hfma2(__high2half2(a[i]), b[1][j], part[i][j]);
                }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float2 f = __half22float2(part[i][j]);
                sum[i][2 * j] += f.x;
                sum[i][2 * j + 1] += f.y;
            }
        if (s + 1 < steps) fetch.store(tiles, (s + 1) & 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        float4* to = reinterpret_cast<float4*>(out + size_t(blockIdx.y * 128 + ty * 8 + i) * n + blockIdx.x * 128 + tx * 8);
        to[0] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        to[1] = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}

__global__ void __launch_bounds__(256) linear_wmma(const __half* __restrict__ x, const __half* __restrict__ w, float* __restrict__ out, int n, int k) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) Tiles tiles;
    const int warp = threadIdx.x / 32, row = warp / 2 * 32, column = warp % 2 * 64, steps = k / kStep;
    fragment<accumulator, 16, 16, 16, float> sum[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) fill_fragment(sum[i / 4][i % 4], 0.0f);
    Fetch fetch;
    fetch.load(x, w, k, n, 0);
    fetch.store(tiles, 0);
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        if (s + 1 < steps) fetch.load(x, w, k, n, s + 1);
#pragma unroll
        for (int q = 0; q < kStep; q += 16) {
            fragment<matrix_a, 16, 16, 16, __half, row_major> a[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) load_matrix_sync(a[i], &tiles.a[s & 1][(row + i * 16) * kPitchA + q], kPitchA);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                fragment<matrix_b, 16, 16, 16, __half, row_major> b;
                load_matrix_sync(b, &tiles.b[s & 1][q * kPitchB + column + j * 16], kPitchB);
#pragma unroll
                for (int i = 0; i < 2; ++i) mma_sync(sum[i][j], a[i], b, sum[i][j]);
            }
        }
        if (s + 1 < steps) fetch.store(tiles, (s + 1) & 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            store_matrix_sync(out + size_t(blockIdx.y * 128 + row + i * 16) * n + blockIdx.x * 128 + column + j * 16, sum[i][j], n, mem_row_major);
}

struct Reference {
    const __half *x, *w;
    int n, k;
    __device__ double operator()(size_t i) const {
        size_t row = i / n, column = i % n;
        double sum = 0;
        for (int j = 0; j < k; ++j) sum += double(__half2float(x[row * k + j])) * double(__half2float(w[size_t(j) * n + column]));
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int m = positive(args, "m", 8448, 65536), n = positive(args, "n", 2048, 65536), k = positive(args, "k", 1024, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && k % kStep == 0, "--m and --n must be multiples of 128, --k of 32");
    auto *x = device_alloc<__half>(size_t(m) * k), *w = device_alloc<__half>(size_t(n) * k);
    float* out = device_alloc<float>(size_t(m) * n);
    fill_uniform(x, size_t(m) * k, key, -1.0f, 1.0f);
    fill_uniform(w, size_t(n) * k, key + 1, -1.0f, 1.0f);
    poison(out, size_t(m) * n * 4);
    auto launch = [&] {
        auto kernel = fix ? linear_wmma : linear_half2;
        kernel<<<dim3(n / 128, m / 128), 256>>>(x, w, out, n, k);
    };
    launch_once(launch);
    double error = sample_error(out, size_t(m) * n, Reference{x, w, n, k}, 65536);
    return report("faults/p-halves", median_us(launch, reps), 2.0 * m * n * k, 0, error, 4e-3);
}
