// What all reference kernels share: arguments, inputs, timing, the comparison and the result line.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

inline void check_cuda(cudaError_t status, const char* file, int line) {
    if (status == cudaSuccess) return;
    const char* slash = std::strrchr(file, '/');
    std::fprintf(stderr, "%s:%d: %s (%s)\n", slash ? slash + 1 : file, line, cudaGetErrorString(status),
                 cudaGetErrorName(status));
    std::exit(1);
}
#define CHECK_CUDA(expr) check_cuda((expr), __FILE__, __LINE__)

// Ends the program with one line on stderr unless `ok`.
inline void require(bool ok, const std::string& text) {
    if (ok) return;
    std::fprintf(stderr, "error: %s\n", text.c_str());
    std::exit(1);
}

// `--name value` pairs. Every get() claims its name; done() refuses what nobody claimed.
struct Args {
    Args(int argc, char** argv) {
        for (int i = 1; i < argc; i += 2) {
            require(std::strncmp(argv[i], "--", 2) == 0 && argv[i][2], std::string("expected --name, got ") + argv[i]);
            require(i + 1 < argc, std::string("no value after ") + argv[i]);
            values[argv[i] + 2] = argv[i + 1];
        }
    }

    long long get(const char* name, long long def) {
        claimed.insert(name);
        auto it = values.find(name);
        if (it == values.end()) return def;
        char* end = nullptr;
        errno = 0;
        long long value = std::strtoll(it->second.c_str(), &end, 10);
        require(!errno && end != it->second.c_str() && !*end,
                std::string("--") + name + " wants an integer, got " + it->second);
        return value;
    }

    std::string get_str(const char* name, const char* def) {
        claimed.insert(name);
        auto it = values.find(name);
        return it == values.end() ? def : it->second;
    }

    void done() {
        for (auto& entry : values) require(claimed.count(entry.first) > 0, "unknown argument --" + entry.first);
    }

    std::map<std::string, std::string> values;
    std::set<std::string> claimed{"repeats", "seed"};
};

inline int repeats(Args& args) {
    long long count = args.get("repeats", 20);
    require(count >= 0 && count <= 1000000, "--repeats must be between 0 and 1000000");
    return int(count);
}

inline unsigned long long seed(Args& args) {
    std::random_device device;
    return (unsigned long long)args.get("seed", (long long)(device() & 0x7fffffffu));
}

template <class T>
T* device_alloc(size_t n) {
    void* p = nullptr;
    CHECK_CUDA(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
    return static_cast<T*>(p);
}

__host__ __device__ inline unsigned long long diagnose_hash(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

template <class T>
__global__ void diagnose_fill(T* out, size_t n, unsigned long long key, float lo, float hi) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned long long bits = diagnose_hash(key + i);
        float value = lo + (hi - lo) * (float(unsigned(bits >> 40)) * 0x1p-24f);
        if constexpr (std::is_same_v<T, uint8_t>) {
            out[i] = uint8_t(bits >> 56);
        } else if constexpr (std::is_integral_v<T>) {
            // 32 bits of the hash, not 24: large index ranges must reach every value.
            double wide = double(lo) + (double(hi) - double(lo)) * (double(unsigned(bits >> 32)) * 0x1p-32);
            out[i] = T((long long)floor(wide));
        } else if constexpr (std::is_same_v<T, double>) {
            out[i] = double(lo) + (double(hi) - double(lo)) * (double(bits >> 11) * 0x1p-53);
        } else if constexpr (std::is_same_v<T, __half>) {
            out[i] = __float2half_rn(value);
        } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
            out[i] = __float2bfloat16_rn(value);
        } else {
            out[i] = value;
        }
    }
}

// Uniform in [lo, hi); integers are rounded down; uint8_t gets raw bytes. The same seed gives the same values.
template <class T>
void fill_uniform(T* dev, size_t n, unsigned long long seed, float lo, float hi) {
    if (n == 0) return;
    unsigned blocks = unsigned(std::min<size_t>((n + 255) / 256, 4096));
    diagnose_fill<T><<<blocks, 256>>>(dev, n, diagnose_hash(seed), lo, hi);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
}

// All bits set is NaN in every floating type: an output that is never written cannot pass.
inline void poison(void* dev, size_t bytes) {
    CHECK_CUDA(cudaMemset(dev, 0xff, bytes));
}

// Median time of `launch()` in microseconds. With 0 repeats nothing is launched and the result is NaN.
template <class F>
double median_us(F launch, int repeats) {
    if (repeats <= 0) return NAN;
    for (int i = 0; i < 3; ++i) launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    cudaEvent_t start, stop;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&stop));
    std::vector<float> times(repeats);
    for (float& ms : times) {
        CHECK_CUDA(cudaEventRecord(start));
        launch();
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaEventRecord(stop));
        CHECK_CUDA(cudaEventSynchronize(stop));
        CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
    }
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(stop));
    std::sort(times.begin(), times.end());
    return 500.0 * (double(times[(repeats - 1) / 2]) + double(times[repeats / 2]));
}

template <class T>
std::vector<T> to_host(const T* dev, size_t n) {
    std::vector<T> host(n);
    CHECK_CUDA(cudaMemcpy(host.data(), dev, n * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

// ||out - ref|| / ||ref||
inline double relative_error(const std::vector<float>& out, const std::vector<double>& ref) {
    if (out.size() != ref.size() || out.empty()) return NAN;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < out.size(); ++i) {
        double d = double(out[i]) - ref[i];
        difference += d * d;
        norm += ref[i] * ref[i];
    }
    if (norm == 0) return difference == 0 ? 0.0 : (double)INFINITY;
    return std::sqrt(difference / norm);
}

// Prints the result line; the return value is the exit code.
inline int report(const char* name, double us, double flops, double bytes, double error, double tolerance) {
    char time[32] = "-", rate[48] = "-";
    if (std::isfinite(us) && us > 0) {
        std::snprintf(time, sizeof time, "%.1f us", us);
        double value = flops > 0 ? flops / us * 1e-6 : bytes / us * 1e-3;
        std::snprintf(rate, sizeof rate, value < 1 ? "%.3g %s" : "%.1f %s", value, flops > 0 ? "TFLOP/s" : "GB/s");
    }
    bool ok = error <= tolerance;  // false for NaN
    std::printf("%s | %s | %s | error %.2g (tolerance %.2g) | %s\n", name, time, rate, error, tolerance,
                ok ? "ok" : "mismatch");
    std::fflush(stdout);
    if (!ok) std::fprintf(stderr, "error: %s: error %.3g exceeds the tolerance %.3g\n", name, error, tolerance);
    return ok ? 0 : 1;
}
