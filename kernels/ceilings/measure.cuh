// What the ceiling programs share: stamps taken inside a kernel, repeats, and one JSON line a measurement.
#pragma once

#include <functional>

#include "../common.cuh"

// When a block began and ended: SM cycles and the GPU's nanosecond timer. Cycles over nanoseconds are the SM clock that
// the block really ran at, whatever the clock is set to.
struct Stamp {
    unsigned long long begin_cycles, end_cycles, begin_ns, end_ns;
};

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}
__device__ __forceinline__ unsigned long long now_cycles() {
    unsigned long long cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}
__device__ __forceinline__ void begin(Stamp& stamp) { stamp.begin_ns = now_ns(), stamp.begin_cycles = now_cycles(); }
// Called by the whole block.
__device__ __forceinline__ void end(Stamp& stamp, Stamp* stamps) {
    __syncthreads();
    stamp.end_ns = now_ns(), stamp.end_cycles = now_cycles();
    if (threadIdx.x == 0) stamps[blockIdx.x] = stamp;
}
// Keeps a result alive without ever storing it: the compiler cannot know that the test is false.
__device__ __forceinline__ void keep(uint32_t value, Stamp* stamps) {
    if (value == 0x7fedcba9u && stamps == nullptr) __trap();
}

constexpr int kRepeats = 11;      // the median of an odd number, and quartiles that are values
constexpr int kMaxBlocks = 65536;  // stamps that fit

struct Launched {
    double us;  // first block's begin to the last one's end
    double mhz;
    double cycles;  // longest block
};

// What one machine is, and the stamps that its kernels write.
struct Bench {
    Bench() {
        int device = 0;
        CHECK_CUDA(cudaGetDevice(&device));
        CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
        stamps = device_alloc<Stamp>(kMaxBlocks);
    }
    int sms() const { return properties.multiProcessorCount; }

    // Runs `launch(stamps)` once and reads the `blocks` stamps that it wrote.
    template <class F>
    Launched once(F launch, int blocks) {
        require(blocks <= kMaxBlocks, "more blocks than stamps");
        launch(stamps);
        CHECK_CUDA(cudaGetLastError());
        std::vector<Stamp> seen = to_host(stamps, size_t(blocks));
        unsigned long long first = ~0ull, last = 0, longest = 0, ns = 1;
        for (const Stamp& s : seen) {
            first = std::min(first, s.begin_ns), last = std::max(last, s.end_ns);
            if (s.end_cycles - s.begin_cycles > longest) longest = s.end_cycles - s.begin_cycles, ns = s.end_ns - s.begin_ns;
        }
        return {double(last - first) * 1e-3, ns ? double(longest) / double(ns) * 1e3 : 0.0, double(longest)};
    }

    cudaDeviceProp properties;
    Stamp* stamps;
};

__global__ void spin(unsigned long long ns, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    while (now_ns() - stamp.begin_ns < ns) {
    }
    end(stamp, stamps);
}

// An idle GPU runs at a low clock: keep it busy until it is up, then read the clock.
inline double wake(Bench& bench, unsigned long long ms) {
    auto run = [&](Stamp* s) { spin<<<bench.sms(), 128>>>(ms * 1000000ull, s); };
    return bench.once(run, bench.sms()).mhz;
}

// One line: the median, the spread of the middle half about it, the clock and its own spread (largest less smallest).
inline void print_line(const std::string& key, const char* unit, std::vector<double> values, std::vector<double> clocks) {
    std::sort(values.begin(), values.end());
    std::sort(clocks.begin(), clocks.end());
    size_t n = values.size(), c = clocks.size();
    double value = values[n / 2], mhz = clocks[c / 2];
    double spread = value > 0 ? (values[n - 1 - n / 4] - values[n / 4]) / value : INFINITY;
    double moved = mhz > 0 ? (clocks[c - 1] - clocks[0]) / mhz : INFINITY;
    if (!std::isfinite(value) || !std::isfinite(spread) || !std::isfinite(moved)) {
        std::fprintf(stderr, "error: %s: no finite value\n", key.c_str());
        return;
    }
    std::printf("{\"key\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"repeats\": %zu, \"spread\": %.4f, \"clock_mhz\": %.1f, "
                "\"clock_spread\": %.4f}\n",
                key.c_str(), value, unit, n, spread, mhz, moved);
    std::fflush(stdout);
}

// A rate: `work` over the time of each launch.
template <class F>
void rate(Bench& bench, const std::string& key, const char* unit, double work, int blocks, F launch) {
    std::vector<double> values, clocks;
    for (int i = -2; i < kRepeats; ++i) {
        Launched seen = bench.once(launch, blocks);
        if (i < 0) continue;  // warm-up
        values.push_back(work / (seen.us * 1e-6));
        clocks.push_back(seen.mhz);
    }
    print_line(key, unit, values, clocks);
}
