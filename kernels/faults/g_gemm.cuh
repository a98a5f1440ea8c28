// C (m x n) = A (m x k) B (n x k)^T, both operands K-major, on mma.sync; 128 x 128 tiles, 4 warps of 64 x 64, cp.async.
// All kinds see K in bytes: an mma takes 32 bytes of K of either operand.
#pragma once
#include <cuda_fp8.h>

#include "../mma.cuh"
#include "g_util.cuh"

namespace held {

struct Bf16 { using T = __nv_bfloat16; using Acc = float; };
struct Tf32 { using T = float; using Acc = float; };
struct Int8 { using T = int8_t; using Acc = int; };
struct Fp8AsHalf { using T = __nv_fp8_e4m3; using Acc = float; };

__device__ __forceinline__ void multiply(Bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma(c, a, b0, b1);
}
__device__ __forceinline__ void multiply(Tf32, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(Int8, int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                              uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Four e4m3 values to two pairs of half.
__device__ __forceinline__ void widen(uint32_t v, uint32_t& low, uint32_t& high) {
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
        : "=r"(low), "=r"(high)
        : "r"(v));
}

constexpr int kGemmStages = 3, kGemmStage = 2 * 128 * 128;
constexpr size_t kGemmShared = size_t(kGemmStages) * kGemmStage;

template <bool SWIZZLE>
__device__ __forceinline__ uint32_t chunk_at(int row, int chunk) {
    return row * 128 + ((SWIZZLE ? chunk ^ (row & 7) : chunk) << 4);
}

template <class KIND, bool SWIZZLE>
__device__ __forceinline__ void gemm_tile(const char* a, const char* b, typename KIND::Acc* c, int n, int kbytes, int tile_m,
                                          int tile_n, unsigned char* smem) {
    using Acc = typename KIND::Acc;
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5, wm = (warp & 1) * 64, wn = (warp >> 1) * 64;
    const uint32_t base = shared_address(smem);
    const char* ga = a + (size_t(tile_m) * 128 + (t >> 3)) * kbytes + (t & 7) * 16;
    const char* gb = b + (size_t(tile_n) * 128 + (t >> 3)) * kbytes + (t & 7) * 16;
    const int steps = kbytes / 128;

    auto load = [&](int step) {
        uint32_t to = base + (step % kGemmStages) * kGemmStage;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int row = (t >> 3) + 16 * i;
            uint32_t at = to + chunk_at<SWIZZLE>(row, t & 7);
            copy_async_16(at, ga + size_t(16 * i) * kbytes + size_t(step) * 128);
            copy_async_16(at + 128 * 128, gb + size_t(16 * i) * kbytes + size_t(step) * 128);
        }
    };

    Acc acc[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[i][j][e] = Acc(0);

#pragma unroll
    for (int s = 0; s < kGemmStages - 1; ++s) {
        if (s < steps) load(s);
        copy_commit();
    }
    for (int step = 0; step < steps; ++step) {
        copy_wait<kGemmStages - 2>();
        __syncthreads();
        if (step + kGemmStages - 1 < steps) load(step + kGemmStages - 1);
        copy_commit();
        uint32_t sa = base + (step % kGemmStages) * kGemmStage, sb = sa + 128 * 128;
#pragma unroll
        for (int ks = 0; ks < 4; ++ks) {
            uint32_t fa[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                ldmatrix(fa[i], sa + chunk_at<SWIZZLE>(wm + 16 * i + (lane & 15), 2 * ks + (lane >> 4)));
            if constexpr (std::is_same_v<KIND, Fp8AsHalf>) {
                uint32_t lo[4][4], hi[4][4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int e = 0; e < 4; ++e) widen(fa[i][e], lo[i][e], hi[i][e]);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    uint32_t fb[4], bl[4], bh[4];
                    ldmatrix(fb, sb + chunk_at<SWIZZLE>(wn + 16 * j + (lane & 7) + ((lane >> 4) << 3), 2 * ks + ((lane >> 3) & 1)));
#pragma unroll
                    for (int e = 0; e < 4; ++e) widen(fb[e], bl[e], bh[e]);
                    // The same permutation of K in both operands: the sum is the same.
#pragma unroll
                    for (int i = 0; i < 4; ++i)
#pragma unroll
                        for (int h = 0; h < 2; ++h) {
                            multiply_half(acc[i][2 * j + h], lo[i][0], lo[i][1], hi[i][0], hi[i][1], bl[2 * h], bh[2 * h]);
                            multiply_half(acc[i][2 * j + h], lo[i][2], lo[i][3], hi[i][2], hi[i][3], bl[2 * h + 1], bh[2 * h + 1]);
                        }
                }
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    uint32_t fb[4];
                    ldmatrix(fb, sb + chunk_at<SWIZZLE>(wn + 16 * j + (lane & 7) + ((lane >> 4) << 3), 2 * ks + ((lane >> 3) & 1)));
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        multiply(KIND{}, acc[i][2 * j], fa[i], fb[0], fb[1]);
                        multiply(KIND{}, acc[i][2 * j + 1], fa[i], fb[2], fb[3]);
                    }
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();  // before the next tile's copies

    struct alignas(8) Pair { Acc x, y; };
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            size_t row = size_t(tile_m) * 128 + wm + 16 * i + (lane >> 2), col = size_t(tile_n) * 128 + wn + 8 * j + (lane & 3) * 2;
            *reinterpret_cast<Pair*>(c + row * n + col) = Pair{acc[i][j][0], acc[i][j][1]};
            *reinterpret_cast<Pair*>(c + (row + 8) * n + col) = Pair{acc[i][j][2], acc[i][j][3]};
        }
}

template <class T>
__device__ inline float as_float(T v) { return float(v); }
template <>
__device__ inline float as_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
__global__ void random_operand(T* out, size_t n, unsigned long long key) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        unsigned bits = unsigned(diagnose_hash(key + i) >> 40);
        float v = float(bits) * 0x1p-23f - 1.0f;
        if constexpr (std::is_same_v<T, int8_t>)
            out[i] = int8_t(int(bits >> 16) - 128);
        else
            out[i] = T(v);
    }
}

// Plain tiles of 16 x 16, sums in double; element (row, k) of A at row * a_row + k * a_k, of B at col * b_row + k * b_k.
template <class T, class R>
__global__ void reference_product(const T* a, size_t a_row, size_t a_k, const T* b, size_t b_row, size_t b_k, R* c, int n, int k) {
    __shared__ float sa[16][17], sb[16][17];
    int x = threadIdx.x, y = threadIdx.y;
    size_t row = size_t(blockIdx.y) * 16 + y, col = size_t(blockIdx.x) * 16 + x;
    double sum = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        sa[y][x] = as_float(a[row * a_row + size_t(k0 + x) * a_k]);
        sb[y][x] = as_float(b[(size_t(blockIdx.x) * 16 + y) * b_row + size_t(k0 + x) * b_k]);
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += double(sa[y][i]) * double(sb[x][i]);
        __syncthreads();
    }
    c[row * n + col] = R(sum);
}

// Inputs, one checked launch, timing, the result line. launch(a, b, c) starts the measured kernel.
template <class KIND, class F>
int run_gemm(const char* name, Args& args, int m, int n, int k, double tolerance, F launch) {
    using T = typename KIND::T;
    using Acc = typename KIND::Acc;
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(m > 0 && n > 0 && k > 0 && m <= 32768 && n <= 32768 && k <= 65536, "sizes out of range");
    require(m % 128 == 0 && n % 128 == 0 && (size_t(k) * sizeof(T)) % 128 == 0, "m and n must be multiples of 128, k of 128 bytes");
    T* a = device_alloc<T>(size_t(m) * k);
    T* b = device_alloc<T>(size_t(n) * k);
    Acc* c = device_alloc<Acc>(size_t(m) * n);
    float* ref = device_alloc<float>(size_t(m) * n);
    random_operand<<<1056, 256>>>(a, size_t(m) * k, diagnose_hash(s));
    random_operand<<<1056, 256>>>(b, size_t(n) * k, diagnose_hash(s + 1));
    finish();
    reference_product<<<dim3(n / 16, m / 16), dim3(16, 16)>>>(a, size_t(k), size_t(1), b, size_t(k), size_t(1), ref, n, k);
    poison(c, size_t(m) * n * sizeof(Acc));
    finish();
    launch(a, b, c);
    finish();
    double error = device_error(c, ref, size_t(m) * n);
    double us = median_us([&] { launch(a, b, c); }, reps);
    return report(name, us, 2.0 * m * n * k, 0, error, tolerance);
}

}  // namespace held
