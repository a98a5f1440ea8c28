// A block's 128 x 128 product of bf16 rows of k values, 64 of them a step, in cp.async stages: for the p_ programs whose fault lies elsewhere.
#pragma once

#include "p_tile.cuh"

constexpr int kStages = 3, kPanel = 128 * 128, kStage = 2 * kPanel;

// Adds a's rows `row` ... row + 31 times b's rows `column` ... column + 63 to `c`; all 256 threads of the block call it. k >= 128.
template <bool SWIZZLE>
__device__ __forceinline__ void p_product(float (&c)[2][8][4], uint32_t base, const __nv_bfloat16* a, const __nv_bfloat16* b, int k, int row,
                                          int column, int lane) {
    auto load = [&](int step) {
        uint32_t to = base + step % kStages * kStage;
        p_load_panel<128, 256, SWIZZLE>(to, a + step * 64, size_t(k) * 2);
        p_load_panel<128, 256, SWIZZLE>(to + kPanel, b + step * 64, size_t(k) * 2);
    };
    const int steps = k / 64;
    for (int s = 0; s < kStages - 1; ++s) {
        load(s);
        copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
        copy_wait<kStages - 2>();
        __syncthreads();
        if (s + kStages - 1 < steps) load(s + kStages - 1);
        copy_commit();
        uint32_t stage = base + s % kStages * kStage;
        p_multiply<P_Bf16, SWIZZLE>(c, stage + row * 128, stage + kPanel + column * 128, lane);
    }
}
