// What the compute pairs share: the variant, the grid of a full GPU, the comparison by samples.
#pragma once
#include "../common.cuh"

// `--variant fault|fix`; anything else is refused.
inline bool wants_fault(Args& args) {
    std::string variant = args.get_str("variant", "fault");
    require(variant == "fault" || variant == "fix", "--variant wants fault or fix, got " + variant);
    return variant == "fault";
}

inline int sm_count() {
    int device = 0, count = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
}

// A block gets more than 48 KB of shared memory only after this.
template <class K>
void allow_smem(K kernel, size_t bytes) {
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

// ||out - ref|| / ||ref|| over an odd-strided sample (double references of whole arrays would take minutes here);
// the poison is NaN, so a value that is not finite anywhere in the array counts as a mismatch.
template <class T, class F>
double sampled_error(const std::vector<T>& out, F reference, size_t samples = 2048) {
    for (T v : out)
        if (!std::isfinite(double(v))) return INFINITY;
    size_t n = out.size(), step = std::max<size_t>(1, n / std::max<size_t>(1, samples)) | 1;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i += step) {
        double want = double(reference(i)), d = double(out[i]) - want;
        difference += d * d;
        norm += want * want;
    }
    return norm > 0 ? std::sqrt(difference / norm) : (difference > 0 ? INFINITY : 0.0);
}

// Poison, one launch, compare, time, report.
template <class T, class L, class F>
int run_checked(const char* name, int reps, L launch, T* out, size_t n, F reference, double flops, double bytes,
                double tolerance, size_t samples = 2048) {
    poison(out, n * sizeof(T));
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sampled_error(to_host(out, n), reference, samples);
    return report(name, median_us(launch, reps), flops, bytes, error, tolerance);
}
