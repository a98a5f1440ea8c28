// Panels of 128-byte rows in shared memory and the warp's share of a product of two of them, for the p_ programs that use mma.sync.
#pragma once

#include "../mma.cuh"
#include "p_harness.cuh"

// The 16-byte piece of row `row` at which piece `piece` lies: exclusive or with the row, as TMA's 128-byte swizzle has it, or plain.
template <bool SWIZZLE>
__device__ __forceinline__ uint32_t p_place(int row, int piece) {
    return uint32_t(row * 128 + (SWIZZLE ? piece ^ (row & 7) : piece) * 16);
}

// ROWS rows of 128 bytes, `pitch` bytes apart in global memory, by cp.async.
template <int ROWS, int THREADS, bool SWIZZLE>
__device__ __forceinline__ void p_load_panel(uint32_t to, const void* from, size_t pitch) {
#pragma unroll
    for (int i = 0; i < ROWS * 8 / THREADS; ++i) {
        int at = i * THREADS + int(threadIdx.x), row = at / 8, piece = at % 8;
        copy_async_16(to + p_place<SWIZZLE>(row, piece), static_cast<const char*>(from) + row * pitch + piece * 16);
    }
}

struct P_Bf16 {
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { ::mma(c, a, b0, b1); }
};

// 32 rows of `a` times 64 rows of `b`, over the 128 bytes of their rows. `a` and `b` start at multiples of eight rows.
template <class Type, bool SWIZZLE>
__device__ __forceinline__ void p_multiply(float (&c)[2][8][4], uint32_t a, uint32_t b, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        uint32_t left[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) ldmatrix(left[m], a + p_place<SWIZZLE>(m * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            uint32_t right[4];
            ldmatrix(right, b + p_place<SWIZZLE>(n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                Type::mma(c[m][2 * n], left[m], right[0], right[1]);
                Type::mma(c[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

template <int M, int N>
__device__ __forceinline__ void p_clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) c[i][j][e] = 0;
}

// The warp's 32 x 64 results as bf16, each through `f(value, column within the 64)`.
template <class F>
__device__ __forceinline__ void p_store(__nv_bfloat16* out, size_t ld, const float (&c)[2][8][4], int lane, F f) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            __nv_bfloat16* row = out + size_t(m * 16 + h * 8 + lane / 4) * ld;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                int column = n * 16 + lane % 4 * 2;
                const float *l = &c[m][2 * n][2 * h], *r = &c[m][2 * n + 1][2 * h];
                store_row_16(row + n * 16, pack_bf16(f(l[0], column), f(l[1], column + 1)), pack_bf16(f(r[0], column + 8), f(r[1], column + 9)),
                             lane);
            }
        }
}

inline void p_allow(const void* kernel, size_t bytes) {
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}
