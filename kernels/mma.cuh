// The instructions of the warp-level Tensor path (sm_80 and later): cp.async, ldmatrix, mma.sync.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ inline void copy_async_16(uint32_t shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Four 8 x 8 matrices; lanes 8i to 8i+7 give the row addresses of matrix i.
__device__ inline void ldmatrix(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}
__device__ inline void ldmatrix_transposed(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

// c (16 x 8) += a (16 x 16) * b (16 x 8). Lane 4g+t holds c of rows g, g+8 and columns 2t, 2t+1.
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// Stores one row of two neighbouring accumulators (columns 0-7 in `left`, 8-15 in `right`) as bf16. Lanes swap halves
// first, so that a quad writes one full 32-byte sector instead of two halves at different times.
__device__ inline void store_row_16(__nv_bfloat16* row, uint32_t left, uint32_t right, int lane) {
    bool odd = lane & 1;
    uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? left : right, 1);
    uint2 value = odd ? make_uint2(other, right) : make_uint2(left, other);
    *reinterpret_cast<uint2*>(row + (odd ? 8 : 0) + (lane & 2) * 2) = value;
}
