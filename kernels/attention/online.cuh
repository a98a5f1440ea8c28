// Attention of 64 queries a warpgroup on wgmma: the two products, and the softmax between them, kept online.
// A lane holds two rows, lane / 4 of its warp's 16 and the one eight below: accumulators 4j and 4j + 1 are columns
// 8j + 2 (lane % 4) and the next of the upper row, 4j + 2 and 4j + 3 the same of the lower.
#pragma once

#include "panels.cuh"

constexpr int kKeys = 128;  // keys of a tile of K and V

// score = Q K^T. `q` and `k`: where the tiles start in shared memory; a panel of Q has `q_rows` rows.
template <int D>
__device__ inline void multiply_keys(float (&score)[kKeys / 2], uint32_t q, int q_rows, uint32_t k) {
    uint64_t a = descriptor_128(q), b = descriptor_128(k);
#pragma unroll
    for (int i = 0; i < D / 16; ++i)  // 16 columns are 32 bytes of a panel's row
        Wgmma<Type::bf16, kKeys>::ss(score, advance(a, i / 4 * q_rows * 128 + i % 4 * 32),
                                     advance(b, i / 4 * kKeys * 128 + i % 4 * 32), i > 0);
}

// result += P V. V's rows are keys: its columns come first, the next 64 of them are the next panel, eight keys are 1024 bytes.
template <int D>
__device__ inline void multiply_values(float (&result)[D / 2], const uint32_t (&weight)[kKeys / 16][4], uint32_t v) {
    uint64_t b = descriptor(v, kKeys * 128, 1024, Swizzle::b128);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) Wgmma<Type::bf16, D, true>::rs(result, weight[i], advance(b, i * 16 * 128), 1);
}

// Keys behind the query get no weight. `query`: this lane's upper row; `key`: column 0 of its scores.
__device__ inline void mask_causal(float (&score)[kKeys / 2], int query, int key) {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i)
        if (key + i / 4 * 8 + i % 2 > query + i % 4 / 2 * 8) score[i] = -INFINITY;
}

// Scores to weights exp2((score - largest) scale_log2), and the state of the row: its largest score and this lane's part
// of the sum. `shrink` is what earlier weights have to be multiplied by. Every row must have a key by its first tile.
__device__ inline void softmax_step(float (&score)[kKeys / 2], float (&largest)[2], float (&total)[2], float (&shrink)[2],
                                    float scale_log2) {
    // One warp a scheduler is at it: four chains, not one, hide the latency of each operation.
    float peak[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) peak[h][0] = fmaxf(largest[h], score[2 * h]), peak[h][1] = score[2 * h + 1];
#pragma unroll
    for (int i = 4; i < kKeys / 2; ++i) peak[i % 4 / 2][i % 2] = fmaxf(peak[i % 4 / 2][i % 2], score[i]);
    float shift[2], sum[2][2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float top = fmaxf(peak[h][0], peak[h][1]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        shrink[h] = exp2_fast((largest[h] - top) * scale_log2);
        shift[h] = top * scale_log2;
        largest[h] = top;
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
        score[i] = exp2_fast(score[i] * scale_log2 - shift[i % 4 / 2]);
        sum[i % 4 / 2][i % 2] += score[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) total[h] = total[h] * shrink[h] + (sum[h][0] + sum[h][1]);
}

// The accumulator of Q K^T is, packed, the first operand of P V: no exchange between lanes.
__device__ inline void pack_weights(uint32_t (&weight)[kKeys / 16][4], const float (&score)[kKeys / 2]) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) weight[i][e] = pack_bf16(score[8 * i + 2 * e], score[8 * i + 2 * e + 1]);
}

template <int N>
__device__ inline void rescale(float (&result)[N], const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] *= shrink[i % 4 / 2];
}

// `out`: row 0 of the warpgroup.
template <int D>
__device__ inline void store_result(__nv_bfloat16* out, const float (&result)[D / 2], const float (&total)[2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float sum = total[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        float inverse = 1.f / sum;
        __nv_bfloat16* row = out + size_t(warp * 16 + h * 8 + lane / 4) * D;
#pragma unroll
        for (int j = 0; j < D / 8; j += 2)
            store_row_16(row + j * 8, pack_bf16(result[4 * j + 2 * h] * inverse, result[4 * j + 2 * h + 1] * inverse),
                         pack_bf16(result[4 * j + 4 + 2 * h] * inverse, result[4 * j + 5 + 2 * h] * inverse), lane);
    }
}
