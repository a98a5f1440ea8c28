// C (m x n) = A^T B with A (k x m) and B (k x n) on the vector pipes: a register tile a thread, three cp.async stages.
#pragma once
#include "../mma.cuh"
#include "g_util.cuh"

namespace held {

constexpr int kTileStages = 3, kTileBytes = 8192;

// 16 x 16 threads; a row of the stage holds SIDE elements, BK rows of it make 8 KiB.
template <class T, int SIDE, int PER>
__device__ __forceinline__ void register_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    constexpr int V = 16 / sizeof(T), CHUNKS = PER / V, ROW = SIDE * sizeof(T), BK = kTileBytes / ROW, PER_ROW = ROW / 16;
    constexpr bool HALF = std::is_same_v<T, __half>;
    static_assert(PER * 16 == SIDE && CHUNKS >= 1);
    __shared__ __align__(128) unsigned char smem[kTileStages][2][kTileBytes];
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const size_t row0 = size_t(blockIdx.y) * SIDE, col0 = size_t(blockIdx.x) * SIDE;
    auto load = [&](int step) {
        int s = step % kTileStages;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int q = t + i * 256, r = q / PER_ROW, p = q % PER_ROW;
            copy_async_16(shared_address(&smem[s][0][q * 16]), a + size_t(step * BK + r) * m + row0 + p * V);
            copy_async_16(shared_address(&smem[s][1][q * 16]), b + size_t(step * BK + r) * n + col0 + p * V);
        }
    };
    using Acc = std::conditional_t<HALF, __half2, T>;
    constexpr int WIDE = HALF ? PER / 2 : PER;
    Acc acc[PER][WIDE];
#pragma unroll
    for (int i = 0; i < PER; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if constexpr (HALF) acc[i][j] = __floats2half2_rn(0.f, 0.f);
            else acc[i][j] = T(0);
        }
    const int steps = k / BK;
#pragma unroll
    for (int s = 0; s < kTileStages - 1; ++s) {
        if (s < steps) load(s);
        copy_commit();
    }
    for (int step = 0; step < steps; ++step) {
        copy_wait<kTileStages - 2>();
        __syncthreads();
        if (step + kTileStages - 1 < steps) load(step + kTileStages - 1);
        copy_commit();
        const unsigned char* sa = smem[step % kTileStages][0];
        const unsigned char* sb = smem[step % kTileStages][1];
#pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            uint4 ra[CHUNKS], rb[CHUNKS];
#pragma unroll
            for (int q = 0; q < CHUNKS; ++q) {
                ra[q] = *reinterpret_cast<const uint4*>(sa + kk * ROW + (q * 16 + ty) * 16);
                rb[q] = *reinterpret_cast<const uint4*>(sb + kk * ROW + (q * 16 + tx) * 16);
            }
            const T* va = reinterpret_cast<const T*>(ra);
            const Acc* vb = reinterpret_cast<const Acc*>(rb);
#pragma unroll
            for (int i = 0; i < PER; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    if constexpr (HALF) acc[i][j] = __hfma2(__half2half2(va[i]), vb[j], acc[i][j]);
                    else acc[i][j] = fma(va[i], vb[j], acc[i][j]);
                }
        }
    }
#pragma unroll
    for (int i = 0; i < PER; ++i) {
        size_t row = row0 + (i / V * 16 + ty) * V + i % V;
#pragma unroll
        for (int q = 0; q < CHUNKS; ++q) {
            uint4 out;
            constexpr int EACH = WIDE / CHUNKS;
            Acc* o = reinterpret_cast<Acc*>(&out);
#pragma unroll
            for (int e = 0; e < EACH; ++e) o[e] = acc[i][q * EACH + e];
            *reinterpret_cast<uint4*>(c + row * n + col0 + (q * 16 + tx) * V) = out;
        }
    }
}

template <class T>
__global__ void reference_outer(const T* a, const T* b, double* c, int m, int n, int k) {
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    double sum = 0;
    for (int i = 0; i < k; ++i) sum += as_double(a[size_t(i) * m + row]) * as_double(b[size_t(i) * n + col]);
    c[size_t(row) * n + col] = sum;
}

template <class T, class F>
int run_register_tile(const char* name, Args& args, int m, int n, int k, int side, double tolerance, F launch) {
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(m > 0 && n > 0 && k > 0 && m <= 16384 && n <= 16384 && k <= 16384, "sizes out of range");
    require(m % side == 0 && n % side == 0 && k % 32 == 0, "m and n must be multiples of the tile, k of 32");
    T* a = device_alloc<T>(size_t(m) * k);
    T* b = device_alloc<T>(size_t(n) * k);
    T* c = device_alloc<T>(size_t(m) * n);
    double* ref = device_alloc<double>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, s, -1.0f, 1.0f);
    fill_uniform(b, size_t(n) * k, s + 1, -1.0f, 1.0f);
    reference_outer<<<dim3(n / 32, m / 8), dim3(32, 8)>>>(a, b, ref, m, n, k);
    poison(c, size_t(m) * n * sizeof(T));
    finish();
    launch(a, b, c);
    finish();
    double error = device_error(c, ref, size_t(m) * n);
    double us = median_us([&] { launch(a, b, c); }, reps);
    return report(name, us, 2.0 * m * n * k, 0, error, tolerance);
}

}  // namespace held
