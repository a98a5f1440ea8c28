// C = A B^T with warp-level mma: A[m][k] and B[n][k] bf16, C float; block tile 128 x (32 NT) x 32, eight warps as 2 x 4.
#pragma once
#include "tensor.cuh"
using bf16 = __nv_bfloat16;
constexpr int kDepth = 32;

// Where 16-byte chunk c of row r lies, in elements: the eight rows of an ldmatrix fall into different banks. (Padded rows would
// do that too, but shift half of the sectors, and cp.async fetches a sector twice that it cannot store as one.)
__device__ __forceinline__ int place(int r, int c) { return r * kDepth + (c ^ r / 2 % 4) * 8; }

template <int NT>
struct Tiles {
    static constexpr int rows = 128, cols = 32 * NT, elements = (rows + cols) * kDepth;

    // This thread's q-th chunk of sixteen bytes: 64 rows a turn, the stage's A rows first, then its B rows.
    static __device__ __forceinline__ const bf16* source(const bf16* a, const bf16* b, int k, int k0, int q, int& at) {
        int row = threadIdx.x / 4 + q * 64, part = threadIdx.x % 4 * 8;
        at = place(row, threadIdx.x % 4);
        return q < rows / 64 ? a + (size_t(blockIdx.y) * rows + row) * k + k0 + part
                          : b + (size_t(blockIdx.x) * cols + row - rows) * k + k0 + part;
    }
    static constexpr int chunks = (rows + cols) * 4 / 256;  // per thread

    static __device__ __forceinline__ void multiply(const bf16* stage, float (&acc)[4][NT][4]) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const bf16 *a = stage + warp / 4 * 64 * kDepth, *b = stage + (rows + warp % 4 * 8 * NT) * kDepth;
#pragma unroll
        for (int kk = 0; kk < kDepth; kk += 16) {
            uint32_t fa[4][4], fb[NT][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) ldmatrix4(fa[i], a + place(i * 16 + lane % 16, kk / 8 + lane / 16));
#pragma unroll
            for (int j = 0; j < NT; j += 2) {
                uint32_t r[4];
                ldmatrix4(r, b + place(j * 8 + lane % 8 + lane / 16 * 8, kk / 8 + lane / 8 % 2));
                fb[j][0] = r[0], fb[j][1] = r[1], fb[j + 1][0] = r[2], fb[j + 1][1] = r[3];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < NT; ++j) mma_bf16(acc[i][j], fa[i], fb[j]);
        }
    }
    static __device__ __forceinline__ void store(float* c, int n, const float (&acc)[4][NT][4]) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        size_t row = size_t(blockIdx.y) * rows + warp / 4 * 64 + lane / 4;
        int col = blockIdx.x * cols + warp % 4 * 8 * NT + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                float* to = c + (row + i * 16) * n + col + j * 8;
                *reinterpret_cast<float2*>(to) = make_float2(acc[i][j][0], acc[i][j][1]);
                *reinterpret_cast<float2*>(to + size_t(8) * n) = make_float2(acc[i][j][2], acc[i][j][3]);
            }
    }
};

// Four stages filled by cp.async, three tiles ahead.
template <int NT>
__device__ __forceinline__ void product_ahead(const bf16* a, const bf16* b, float* c, int n, int k, bf16* shared) {
    using T = Tiles<NT>;
    constexpr int S = 4;
    float acc[4][NT][4] = {};
    auto load = [&](int tile) {
        if (tile * kDepth < k) {
#pragma unroll
            for (int q = 0; q < T::chunks; ++q) {
                int at;
                const bf16* from = T::source(a, b, k, tile * kDepth, q, at);
                copy16(shared + tile % S * T::elements + at, from);
            }
        }
        copy_commit();  // an empty group at the end keeps the count right
    };
    for (int s = 0; s < S - 1; ++s) load(s);
    for (int tile = 0; tile * kDepth < k; ++tile) {
        copy_wait<S - 2>();
        __syncthreads();  // this tile is here for all, and all are done with the one whose slot is filled next
        load(tile + S - 1);
        T::multiply(shared + tile % S * T::elements, acc);
    }
    T::store(c, n, acc);
}

inline auto product_reference(const bf16* a, const bf16* b, int m, int n, int k) {
    return [ha = to_host(a, size_t(m) * k), hb = to_host(b, size_t(n) * k), n, k](size_t i) {
        double sum = 0;
        const bf16 *x = &ha[i / n * k], *y = &hb[i % n * k];
        for (int e = 0; e < k; ++e) sum += double(__bfloat162float(x[e])) * double(__bfloat162float(y[e]));
        return sum;
    };
}
