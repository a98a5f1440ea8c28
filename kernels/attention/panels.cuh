// Tiles of Q, K and V as the Hopper kernels keep them: panels of 64 bf16 columns (128 bytes a row), in the 128-byte
// swizzle of TMA and wgmma; and the ring of stages that they pass through.
#pragma once

#include "../common.cuh"
#include "../hopper.cuh"
#include "../mma.cuh"

using namespace hopper;

constexpr int kPanel = 64;  // columns of a panel: 64 bf16 are the 128 bytes that one swizzle pattern spans

// A map of a row-major matrix [rows][columns] of bf16 whose boxes are one panel of `box_rows` rows.
inline CUtensorMap panel_map(const __nv_bfloat16* base, size_t rows, int columns, int box_rows,
                             CUtensorMapL2promotion l2 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
    return matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, rows, columns, box_rows, kPanel, Swizzle::b128, l2);
}

// All columns of `rows` rows, `rows` being the box of the map: one copy a panel.
template <int Columns>
__device__ inline void load_rows(uint32_t target, const CUtensorMap* map, int first_row, int rows, uint64_t* barrier) {
#pragma unroll
    for (int panel = 0; panel < Columns / kPanel; ++panel)
        tma_load(target + panel * rows * 128, map, barrier, panel * kPanel, first_row);
}

// Dynamic shared memory starts at a multiple of 16; the swizzle wants one of 1024.
__device__ inline uint32_t aligned_1024(const void* shared) { return (shared_address(shared) + 1023) & ~1023u; }

// Where a ring of stages stands. The parity of the first pass is 0 for who consumes and 1 for who fills.
struct Ring {
    uint32_t slot, parity;
    __device__ void next(uint32_t stages) {
        if (++slot == stages) slot = 0, parity ^= 1;
    }
};

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
