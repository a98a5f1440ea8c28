// Weighted histogram of skewed data (15 of 16 items in one bin): one shared table a block, or one column a lane.
#include "memory.cuh"

constexpr int BINS = 64;

__device__ unsigned bin_of(unsigned item) { return item & (BINS - 1); }
__device__ unsigned weight_of(unsigned item) { return (item >> 6) & 15; }

// The weight differs by lane, so lanes with the same bin cannot be merged and take turns.
__global__ void __launch_bounds__(512) weigh_table(const uint4* __restrict__ items, unsigned* bins, size_t quads) {
    __shared__ unsigned table[BINS];
    if (threadIdx.x < BINS) table[threadIdx.x] = 0;
    __syncthreads();
    size_t stride = size_t(gridDim.x) * 512;
#pragma unroll 4
    for (size_t i = size_t(blockIdx.x) * 512 + threadIdx.x; i < quads; i += stride) {
        uint4 v = items[i];
        atomicAdd(&table[bin_of(v.x)], weight_of(v.x));
        atomicAdd(&table[bin_of(v.y)], weight_of(v.y));
        atomicAdd(&table[bin_of(v.z)], weight_of(v.z));
        atomicAdd(&table[bin_of(v.w)], weight_of(v.w));
    }
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&bins[threadIdx.x], table[threadIdx.x]);
}

__global__ void __launch_bounds__(512) weigh_columns(const uint4* __restrict__ items, unsigned* bins, size_t quads) {
    __shared__ unsigned table[BINS * 32];  // a lane's counters all lie in its own bank
    for (int i = threadIdx.x; i < BINS * 32; i += 512) table[i] = 0;
    __syncthreads();
    unsigned* column = table + threadIdx.x % 32;
    size_t stride = size_t(gridDim.x) * 512;
#pragma unroll 4
    for (size_t i = size_t(blockIdx.x) * 512 + threadIdx.x; i < quads; i += stride) {
        uint4 v = items[i];
        atomicAdd(&column[bin_of(v.x) * 32], weight_of(v.x));
        atomicAdd(&column[bin_of(v.y) * 32], weight_of(v.y));
        atomicAdd(&column[bin_of(v.z) * 32], weight_of(v.z));
        atomicAdd(&column[bin_of(v.w) * 32], weight_of(v.w));
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
        unsigned total = 0;
        for (int lane = 0; lane < 32; ++lane) total += table[threadIdx.x * 32 + (lane + threadIdx.x) % 32];
        atomicAdd(&bins[threadIdx.x], total);
    }
}

__global__ void make_items(unsigned* items, size_t n, unsigned long long key) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    unsigned bits = unsigned(diagnose_hash(diagnose_hash(key) + i) >> 32);
    items[i] = (bits >> 28) ? (bits & ~63u) | 7u : bits;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 4);
    args.done();
    auto items = device_alloc<unsigned>(n), bins = device_alloc<unsigned>(BINS);
    make_items<<<unsigned((n + 255) / 256), 256>>>(items, n, s);
    CHECK_CUDA(cudaMemset(bins, 0, BINS * 4));
    auto quads = reinterpret_cast<const uint4*>(items);
    unsigned blocks = sm_count() * 4;
    auto launch = [&] {
        if (fault) weigh_table<<<blocks, 512>>>(quads, bins, n / 4);
        else weigh_columns<<<blocks, 512>>>(quads, bins, n / 4);
    };
    run_once(launch);
    std::vector<unsigned> expected(BINS);
    for (unsigned item : to_host(items, n)) expected[item & (BINS - 1)] += (item >> 6) & 15;
    double error = mismatch(bins, BINS, [&](size_t i) { return expected[i]; });
    return report(fault ? "faults/weigh-table" : "faults/weigh-columns", median_us(launch, r), 0, 4.0 * n, error, 0);
}
