// Block sums through a tile in shared memory, with a planted race and its fix: the fault reads its neighbours' numbers with no barrier
// after they were written. No manifest names it: the race costs no time that a profile could show. It is for `diagnose check-races`.
//
//     nvcc -O3 -lineinfo -arch=sm_80 -o race race.cu
//     diagnose check-races ./race --variant fault        finds the race between the write and the read of `tile`
//     diagnose check-races ./race --variant fix          finds nothing
#include "../common.cuh"

constexpr int kThreads = 256, kReach = 64;  // a sum reaches into the next two warps

template <bool Barrier>
__device__ __forceinline__ void window_sums(const float* in, float* out) {
    __shared__ float tile[kThreads];
    size_t first = size_t(blockIdx.x) * kThreads;
    tile[threadIdx.x] = in[first + threadIdx.x];
    if constexpr (Barrier) __syncthreads();
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < kReach; ++i) sum += tile[(threadIdx.x + i) % kThreads];
    out[first + threadIdx.x] = sum;
}

__global__ void window_sums_racing(const float* in, float* out) { window_sums<false>(in, out); }
__global__ void window_sums_ordered(const float* in, float* out) { window_sums<true>(in, out); }

// The fixed one's result is compared with a reference. The racing one's may be right or wrong by chance, so it is not.
int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string variant = args.get_str("variant", "fix");
    require(variant == "fault" || variant == "fix", "--variant is fault or fix, got " + variant);
    int blocks = int(args.get("blocks", 4)), runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(blocks > 0 && blocks <= 65535, "--blocks must be between 1 and 65535");
    size_t n = size_t(blocks) * kThreads;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.f, 1.f);
    poison(out, n * sizeof(float));
    auto launch = [=] {
        if (variant == "fault") window_sums_racing<<<blocks, kThreads>>>(in, out);
        else window_sums_ordered<<<blocks, kThreads>>>(in, out);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    auto host = to_host(in, n), sums = to_host(out, n);
    std::vector<double> expected(n);
    for (size_t i = 0; i < n; ++i)
        for (int j = 0; j < kReach; ++j) expected[i] += host[i / kThreads * kThreads + (i + j) % kThreads];
    double error = variant == "fault" ? 0 : relative_error(sums, expected);
    return report(variant == "fault" ? "faults/race" : "faults/race-fixed", median_us(launch, runs), 0, 8.0 * n, error, 1e-5);
}
