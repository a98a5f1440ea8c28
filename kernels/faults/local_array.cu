// Weighted histogram with 32 bins, counters private to each thread: an indexed array of the thread, or a column of
// shared memory.
#include "memory.cuh"

constexpr int BINS = 32, THREADS = 256;

__device__ void publish(unsigned* bins, int bin, unsigned count) {
    count = __reduce_add_sync(~0u, count);
    if (threadIdx.x % 32 == 0) atomicAdd(&bins[bin], count);
}

// Registers cannot be indexed by data, so the array lives in local memory; lanes with different bins touch different
// lines of it.
__global__ void __launch_bounds__(THREADS) tally_private(const uint4* __restrict__ items, unsigned* bins, size_t quads) {
    unsigned tally[BINS] = {};
    size_t stride = size_t(gridDim.x) * THREADS;
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < quads; i += stride) {
        uint4 v = items[i];
        tally[v.x % BINS] += v.x / BINS;
        tally[v.y % BINS] += v.y / BINS;
        tally[v.z % BINS] += v.z / BINS;
        tally[v.w % BINS] += v.w / BINS;
    }
    for (int bin = 0; bin < BINS; ++bin) publish(bins, bin, tally[bin]);
}

__device__ void count(unsigned* tally, uint4 v) {
    tally[v.x % BINS * THREADS] += v.x / BINS;
    tally[v.y % BINS * THREADS] += v.y / BINS;
    tally[v.z % BINS * THREADS] += v.z / BINS;
    tally[v.w % BINS * THREADS] += v.w / BINS;
}

// Two loads travel while two are counted: 48 warps an SM that wait before they count leave half of the memory idle.
__global__ void __launch_bounds__(THREADS, 6) tally_columns(const uint4* __restrict__ items, unsigned* bins, size_t quads) {
    __shared__ unsigned table[BINS * THREADS];  // no barrier: a thread touches its own column only
    unsigned* tally = table + threadIdx.x;
#pragma unroll
    for (int bin = 0; bin < BINS; ++bin) tally[bin * THREADS] = 0;
    size_t stride = size_t(gridDim.x) * THREADS;
    size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x, end = quads - 1;
    uint4 a = items[min(i, end)], b = items[min(i + stride, end)];
#pragma unroll 1
    for (; i + stride < quads; i += 2 * stride) {
        uint4 next_a = items[min(i + 2 * stride, end)], next_b = items[min(i + 3 * stride, end)];
        count(tally, a);
        count(tally, b);
        a = next_a, b = next_b;
    }
    for (; i < quads; i += stride) count(tally, items[i]);
#pragma unroll 4
    for (int bin = 0; bin < BINS; ++bin) publish(bins, bin, tally[bin * THREADS]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 128 << 20, 4);
    args.done();
    auto items = device_alloc<unsigned>(n), bins = device_alloc<unsigned>(BINS);
    fill_uniform(items, n, s, 0, 4e9f);
    CHECK_CUDA(cudaMemset(bins, 0, BINS * 4));
    auto quads = reinterpret_cast<const uint4*>(items);
    unsigned blocks = sm_count() * 6;  // all resident, with 32 KB of shared memory each
    auto launch = [&] {
        if (fault) tally_private<<<blocks, THREADS>>>(quads, bins, n / 4);
        else tally_columns<<<blocks, THREADS>>>(quads, bins, n / 4);
    };
    run_once(launch);
    std::vector<unsigned> expected(BINS);
    for (unsigned item : to_host(items, n)) expected[item % BINS] += item / BINS;
    double error = mismatch(bins, BINS, [&](size_t i) { return expected[i]; });
    return report(fault ? "faults/tally-private" : "faults/tally-columns", median_us(launch, r), 0, 4.0 * n, error, 0);
}
