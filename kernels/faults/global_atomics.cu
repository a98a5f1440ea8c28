// Histogram of the top byte of n 64-bit keys: every key an atomic in global memory, or in shared memory first.
#include "memory.cuh"

constexpr int BINS = 256;  // 1 KB of counters: the whole GPU contends for 32 sectors of L2

__global__ void __launch_bounds__(512) count_direct(const ulonglong2* __restrict__ keys, unsigned* bins, size_t pairs) {
    size_t stride = size_t(gridDim.x) * 512;
#pragma unroll 4
    for (size_t i = size_t(blockIdx.x) * 512 + threadIdx.x; i < pairs; i += stride) {
        ulonglong2 v = keys[i];
        atomicAdd(&bins[v.x >> 56], 1u);
        atomicAdd(&bins[v.y >> 56], 1u);
    }
}

__global__ void __launch_bounds__(512) count_staged(const ulonglong2* __restrict__ keys, unsigned* bins, size_t pairs) {
    __shared__ unsigned local[BINS];
    if (threadIdx.x < BINS) local[threadIdx.x] = 0;
    __syncthreads();
    size_t stride = size_t(gridDim.x) * 512, i = size_t(blockIdx.x) * 512 + threadIdx.x;
    for (; i + 3 * stride < pairs; i += 4 * stride) {
        ulonglong2 v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = keys[i + k * stride];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            atomicAdd(&local[v[k].x >> 56], 1u);
            atomicAdd(&local[v[k].y >> 56], 1u);
        }
    }
    for (; i < pairs; i += stride) {
        atomicAdd(&local[keys[i].x >> 56], 1u);
        atomicAdd(&local[keys[i].y >> 56], 1u);
    }
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void make_keys(unsigned long long* keys, size_t n, unsigned long long key) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) keys[i] = diagnose_hash(diagnose_hash(key) + i);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 32 << 20, 2);
    args.done();
    auto keys = device_alloc<unsigned long long>(n);
    auto bins = device_alloc<unsigned>(BINS);
    make_keys<<<unsigned((n + 255) / 256), 256>>>(keys, n, s);
    CHECK_CUDA(cudaMemset(bins, 0, BINS * 4));
    auto pairs = reinterpret_cast<const ulonglong2*>(keys);
    unsigned blocks = sm_count() * 4;
    auto launch = [&] {
        if (fault) count_direct<<<blocks, 512>>>(pairs, bins, n / 2);
        else count_staged<<<blocks, 512>>>(pairs, bins, n / 2);
    };
    run_once(launch);
    std::vector<unsigned> expected(BINS);
    for (auto key : to_host(keys, n)) ++expected[key >> 56];
    double error = mismatch(bins, BINS, [&](size_t i) { return expected[i]; });
    return report(fault ? "faults/count-direct" : "faults/count-staged", median_us(launch, r), 0, 8.0 * n, error, 0);
}
