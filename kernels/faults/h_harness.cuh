// What the h_ programs share beyond common.cuh: the --variant argument and a comparison on the device.
#pragma once

#include "../common.cuh"

inline bool want_fix(Args& args) {
    std::string variant = args.get_str("variant", "fault");
    require(variant == "fault" || variant == "fix", "--variant must be fault or fix, got " + variant);
    return variant == "fix";
}

inline int positive(Args& args, const char* name, long long def, long long most = 1ll << 30) {
    long long value = args.get(name, def);
    require(value >= 1 && value <= most, std::string("--") + name + " must be between 1 and " + std::to_string(most));
    return int(value);
}

inline unsigned blocks_for(size_t n, unsigned per_block) {
    return unsigned((n + per_block - 1) / per_block);
}

template <class T>
__device__ double h_value(T v) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return double(__bfloat162float(v));
    else if constexpr (std::is_same_v<T, __half>) return double(__half2float(v));
    else return double(v);
}

// Sums of (out - ref)^2 and ref^2; `ref(i)` gives the expected value of element i in double.
template <class T, class Ref>
__global__ void h_compare(const T* out, size_t n, Ref ref, double* sums) {
    double difference = 0, norm = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double r = ref(i), d = h_value(out[i]) - r;
        difference += d * d;
        norm += r * r;
    }
    for (int s = 16; s; s >>= 1) {
        difference += __shfl_xor_sync(0xffffffffu, difference, s);
        norm += __shfl_xor_sync(0xffffffffu, norm, s);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sums, difference);
        atomicAdd(sums + 1, norm);
    }
}

// ||out - ref|| / ||ref|| over all n elements; NaN if an output is NaN.
template <class T, class Ref>
double device_error(const T* out, size_t n, Ref ref) {
    double* sums = device_alloc<double>(2);
    CHECK_CUDA(cudaMemset(sums, 0, 2 * sizeof(double)));
    unsigned blocks = unsigned(std::min<size_t>((n + 127) / 128, 8192));
    h_compare<T, Ref><<<blocks, 128>>>(out, n, ref, sums);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    std::vector<double> host = to_host(sums, 2);
    CHECK_CUDA(cudaFree(sums));
    if (host[1] == 0) return host[0] == 0 ? 0.0 : (double)INFINITY;
    return std::sqrt(host[0] / host[1]);
}

// The checked launch.
template <class F>
void launch_once(F launch) {
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
}
