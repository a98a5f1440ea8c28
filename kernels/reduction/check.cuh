// The reference of the reduction ladder.
#pragma once

#include "../common.cuh"

// One thread sums one segment in double precision: out[2s] the sum, out[2s+1] the sum of squares.
static __global__ void diagnose_reference(const float* in, double* out, size_t n, size_t segment) {
    size_t s = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (s * segment >= n) return;
    size_t end = s * segment + segment < n ? s * segment + segment : n;
    double sum = 0, squares = 0;
    for (size_t i = s * segment; i < end; ++i) {
        double value = in[i];
        sum += value;
        squares += value * value;
    }
    out[2 * s] = sum;
    out[2 * s + 1] = squares;
}

inline std::vector<double> segment_sums(const float* in, size_t n, size_t segment) {
    size_t segments = (n + segment - 1) / segment;
    double* dev = device_alloc<double>(2 * segments);
    diagnose_reference<<<unsigned((segments + 127) / 128), 128>>>(in, dev, n, segment);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    auto sums = to_host(dev, 2 * segments);
    CHECK_CUDA(cudaFree(dev));
    return sums;
}

// Relative to the norm of the input: the sum of values of both signs has that size on average, but may be near 0.
inline double sum_error(const float* in, size_t n, float result) {
    auto sums = segment_sums(in, n, 4096);
    double sum = 0, squares = 0;
    for (size_t s = 0; s < sums.size(); s += 2) sum += sums[s], squares += sums[s + 1];
    return std::fabs(result - sum) / std::sqrt(squares);
}

inline size_t reduction_size(Args& args, long long def) {
    long long n = args.get("n", def);
    require(n >= 4 && n <= (1ll << 34) && n % 4 == 0, "--n must be a multiple of 4 between 4 and 2^34");
    return size_t(n);
}

// One full wave: as many blocks as the GPU holds at once.
template <class K>
unsigned resident_blocks(K kernel, int threads) {
    int device = 0, sms = 0, resident = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0));
    require(resident > 0, "the kernel does not fit this GPU");
    return unsigned(sms * resident);
}
