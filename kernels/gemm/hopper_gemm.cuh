// What the Hopper steps of the GEMM ladder share: C (m x n) = A (m x k) * B^T, B as n x k; bf16, FP32 accumulators.
// The tile is 128 x 256: two warpgroups of 64 x 256 outputs, 128 accumulators a thread.
#pragma once

#include "../hopper.cuh"
#include "../mma.cuh"
#include "check.cuh"

using bf16 = __nv_bfloat16;

constexpr int kM = 128, kN = 256, kK = 64;  // a row of 64 bf16 is the 128 bytes of the widest swizzle
constexpr int kBytesA = kM * kK * 2, kBytesB = kN * kK * 2, kStageBytes = kBytesA + kBytesB;
constexpr int kGroupBytesA = 64 * kK * 2;  // the rows of A of one warpgroup

// Shared memory: `Stages` stages (A, then B), `Extra` bytes, then the barriers.
template <int Stages, int Extra = 0>
struct Layout {
    static constexpr int extra = Stages * kStageBytes, barriers = extra + Extra;
    static constexpr int bytes = barriers + 2 * Stages * int(sizeof(uint64_t));
};

// One stage's product, issued and committed; `add` 0 starts a new sum. A K step of 16 is 32 bytes further in the row.
__device__ __forceinline__ void multiply_stage(float (&sum)[kN / 2], uint32_t stage, int group, int add) {
    uint64_t a = hopper::descriptor_128(stage + group * kGroupBytesA), b = hopper::descriptor_128(stage + kBytesA);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kK / 16; ++step)
        hopper::Wgmma<hopper::Type::bf16, kN>::ss(sum, hopper::advance(a, step * 32), hopper::advance(b, step * 32), add | step);
    hopper::wgmma_commit();
}

// A warpgroup's 64 x kN outputs, straight from registers; `c` is its first.
__device__ __forceinline__ void store_outputs(const float (&sum)[kN / 2], bf16* c, int n) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        bf16* row = c + size_t(warp * 16 + h * 8 + lane / 4) * n;
#pragma unroll
        for (int j = 0; j < kN / 8; j += 2)
            store_row_16(row + j * 8, pack_bf16(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]),
                         pack_bf16(sum[4 * j + 4 + 2 * h], sum[4 * j + 5 + 2 * h]), lane);
    }
}

inline CUtensorMap bf16_map(const bf16* data, int rows, int columns, int box_rows) {
    return hopper::matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, rows, columns, box_rows, 64, hopper::Swizzle::b128);
}

struct Operands {
    int m, n, k;
    bf16 *a, *b, *c;
};

// The program of one step: `prepare(operands)` gives the function that launches the kernel. m must be a multiple of `rows`.
template <class Prepare>
int gemm_program(const char* name, Args& args, int rows, Prepare prepare) {
    GemmShape shape(args, 8192);
    auto [m, n, k] = shape;
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(m % rows == 0 && n % kN == 0 && k % kK == 0,
            "--m, --n, --k must be multiples of " + std::to_string(rows) + ", 256, 64");

    Operands o{m, n, k, device_alloc<bf16>(size_t(m) * k), device_alloc<bf16>(size_t(n) * k), device_alloc<bf16>(size_t(m) * n)};
    fill_uniform(o.a, size_t(m) * k, key, -1, 1);
    fill_uniform(o.b, size_t(n) * k, key + 1, -1, 1);
    poison(o.c, size_t(m) * n * sizeof(bf16));
    auto launch = prepare(o);
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error<true>(o.a, o.b, o.c, m, n, k, key + 2);
    // Rounding the output to bf16 alone costs about 1.5e-3.
    return report(name, median_us(launch, runs), shape.flops(), 2 * shape.elements(), error, 4e-3);
}

template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}
