// Sums and maxima of a warp and of a block, by shuffles.
#pragma once

#include <cmath>

struct Add {
    static constexpr float kNeutral = 0.f;
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    static constexpr float kNeutral = -INFINITY;
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Op>
__device__ inline float warp_reduce(float value, Op op) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// The result reaches every thread. All threads of the block call it; it ends in no barrier, so that a second call needs
// another `scratch`.
template <int Threads, class Op>
__device__ inline float block_reduce(float value, Op op, float (&scratch)[Threads / 32]) {
    value = warp_reduce(value, op);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_reduce(threadIdx.x % 32 < Threads / 32 ? scratch[threadIdx.x % 32] : Op::kNeutral, op);
}

__device__ inline float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }

// All of these have been loaded before any is used: without this the compiler, short of nothing, spreads the loads out.
template <int N>
__device__ inline void loaded(float4 (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i].x), "+f"(v[i].y), "+f"(v[i].z), "+f"(v[i].w));
}
