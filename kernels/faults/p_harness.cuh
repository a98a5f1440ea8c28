// What the p_ programs share beyond h_harness.cuh: a comparison of samples on the device for costly references.
#pragma once

#include "h_harness.cuh"

// Counts values that are not finite (the poison is NaN).
template <class T>
__global__ void p_count_bad(const T* out, size_t n, unsigned long long* bad) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        if (!isfinite(h_value(out[i]))) atomicAdd(bad, 1ull);
}

template <class T, class Ref>
__global__ void p_compare(const T* out, size_t n, size_t step, Ref ref, double* sums) {
    size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * step;
    if (i >= n) return;
    double r = ref(i), d = h_value(out[i]) - r;
    atomicAdd(sums, d * d);
    atomicAdd(sums + 1, r * r);
}

// ||out - ref|| / ||ref|| over about `samples` elements an odd stride apart; infinite if any of all n is not finite.
template <class T, class Ref>
double sample_error(const T* out, size_t n, Ref ref, size_t samples = 4096) {
    auto* bad = device_alloc<unsigned long long>(1);
    CHECK_CUDA(cudaMemset(bad, 0, 8));
    p_count_bad<<<2048, 256>>>(out, n, bad);
    CHECK_CUDA(cudaGetLastError());
    if (to_host(bad, 1)[0]) return INFINITY;
    double* sums = device_alloc<double>(2);
    CHECK_CUDA(cudaMemset(sums, 0, 16));
    size_t step = std::max<size_t>(1, n / samples) | 1, count = (n + step - 1) / step;
    p_compare<T, Ref><<<unsigned((count + 31) / 32), 32>>>(out, n, step, ref, sums);
    CHECK_CUDA(cudaGetLastError());
    std::vector<double> host = to_host(sums, 2);
    CHECK_CUDA(cudaFree(sums));
    CHECK_CUDA(cudaFree(bad));
    if (host[1] == 0) return host[0] == 0 ? 0.0 : (double)INFINITY;
    return std::sqrt(host[0] / host[1]);
}

// A random permutation of 0 .. n-1.
inline std::vector<int> p_permutation(int n, unsigned long long key) {
    std::vector<int> order(n);
    for (int i = 0; i < n; ++i) order[i] = i;
    std::mt19937_64 rng(key);
    std::shuffle(order.begin(), order.end(), rng);
    return order;
}

template <class T>
T* to_device(const std::vector<T>& host) {
    T* dev = device_alloc<T>(host.size());
    CHECK_CUDA(cudaMemcpy(dev, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return dev;
}

// Two bf16 in a word.
__device__ inline float2 p_unpack(uint32_t w) { return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)); }
