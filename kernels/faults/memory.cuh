// What the pairs of the memory group share beyond common.cuh.
#pragma once

#include "../common.cuh"

// `--variant fault|fix`: true for the fault.
inline bool is_fault(Args& args) {
    std::string variant = args.get_str("variant", "fault");
    require(variant == "fault" || variant == "fix", "--variant is fault or fix, got " + variant);
    return variant == "fault";
}

// A size parameter: positive, a multiple of `step`, at most 2^31 (indices are 32 bit where it is cheaper).
inline size_t size_arg(Args& args, const char* name, long long def, long long step = 1) {
    long long value = args.get(name, def);
    require(value > 0 && value <= (1ll << 31) && value % step == 0,
            std::string("--") + name + " must be a positive multiple of " + std::to_string(step));
    return size_t(value);
}

inline int sm_count() {
    int device = 0, count = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}

template <class F>
void run_once(F launch) {
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
}

// Share of elements that differ from expected(i): for results that must be exact.
template <class T, class F>
double mismatch(const T* dev, size_t n, F expected) {
    std::vector<T> out = to_host(dev, n);
    size_t bad = 0;
    for (size_t i = 0; i < n; ++i) bad += !(out[i] == expected(i));
    return double(bad) / double(n);
}

// Relative error of n floats against expected(i) in double.
template <class F>
double error_against(const float* dev, size_t n, F expected) {
    std::vector<double> ref(n);
    for (size_t i = 0; i < n; ++i) ref[i] = expected(i);
    return relative_error(to_host(dev, n), ref);
}

// Relative error of the sum of per-thread partial sums.
inline double sum_error(const float* dev, size_t n, double expected) {
    double total = 0;
    for (float part : to_host(dev, n)) total += part;
    return std::fabs(total - expected) / std::fabs(expected);
}

inline double host_sum(const float* dev, size_t n) {
    double parts[8] = {};
    std::vector<float> values = to_host(dev, n);
    for (size_t i = 0; i < n; ++i) parts[i % 8] += values[i];
    double total = 0;
    for (double part : parts) total += part;
    return total;
}
