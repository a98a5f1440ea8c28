// Operands of the GEMM programs that take several types.
#pragma once

#include <cuda_fp8.h>

#include "../common.cuh"

// Rounding the output to bf16 alone costs about 1.5e-3. TF32 drops 13 bits of each operand; wgmma sums e4m3 products with fewer
// bits than FP32 has (0.008 measured at k = 4096).
constexpr double kToleranceBf16 = 4e-3, kToleranceTf32 = 4e-3, kToleranceE4m3 = 3e-2;

template <class T>
__global__ void diagnose_convert(const float* from, T* to, size_t count) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = T(from[i]);
}

// Uniform in [-1, 1), rounded to T.
template <class T>
void fill_operand(T* dev, size_t count, unsigned long long key) {
    if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
        float* values = device_alloc<float>(count);
        fill_uniform(values, count, key, -1, 1);
        diagnose_convert<T><<<4096, 256>>>(values, dev, count);
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaFree(values));
    } else {
        fill_uniform(dev, count, key, -1, 1);
    }
}
