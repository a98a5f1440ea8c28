// Records of four floats to four planes, through shared memory: the scalar reads of a record hit a bank four times, which the
// stream from memory hides.
#include "pair.cuh"
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) planes_split(const float4* in, float* out, size_t n) {
    __shared__ __align__(16) float tile[4 * kThreads];
    size_t first = size_t(blockIdx.x) * kThreads;
    reinterpret_cast<float4*>(tile)[threadIdx.x] = in[first + threadIdx.x];
    __syncthreads();
    const volatile float* words = tile;  // volatile keeps the four reads apart: merged, they would not conflict
#pragma unroll
    for (int c = 0; c < 4; ++c) out[c * n + first + threadIdx.x] = words[4 * threadIdx.x + c];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    long long n = args.get("n", 16777216);
    int reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && n % kThreads == 0 && n <= (1ll << 30), "--n must be a multiple of 256 and at most 2^30");
    float *in = device_alloc<float>(4 * size_t(n)), *out = device_alloc<float>(4 * size_t(n));
    fill_uniform(in, 4 * size_t(n), key, -1.f, 1.f);
    auto hi = to_host(in, 4 * size_t(n));
    auto launch = [&] { planes_split<<<unsigned(n / kThreads), kThreads>>>(reinterpret_cast<const float4*>(in), out, size_t(n)); };
    return run_checked("faults/planes-split", reps, launch, out, 4 * size_t(n), [&](size_t i) { return hi[i % n * 4 + i / n]; }, 0, 32.0 * n, 0.0, 1 << 20);
}
