// Scales n values by weights that the host filled. `fault` reads the weights where they are (pinned), `fix` from a copy.
#include "h_harness.cuh"
#include "pair.cuh"

__global__ void __launch_bounds__(256) weigh(const float4* __restrict__ values, const float4* __restrict__ weights, float4* __restrict__ out, int vectors) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= vectors) return;
    float4 v = values[i], w = weights[i];
    out[i] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 25165824, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    size_t bytes = size_t(n) * sizeof(float);
    float *values = device_alloc<float>(n), *out = device_alloc<float>(n), *weights = nullptr, *mapped = nullptr;
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&weights), bytes, cudaHostAllocMapped));
    for (int i = 0; i < n; ++i) weights[i] = float(diagnose_hash(key + i) >> 40) * 0x1p-24f;
    CHECK_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&mapped), weights, 0));
    fill_uniform(values, n, key, 0.5f, 1.0f);
    poison(out, bytes);
    if (fix) {
        mapped = device_alloc<float>(n);
        CHECK_CUDA(cudaMemcpy(mapped, weights, bytes, cudaMemcpyHostToDevice));
    }
    auto launch = [&] {
        weigh<<<blocks_for(n / 4, 256), 256>>>(reinterpret_cast<float4*>(values), reinterpret_cast<float4*>(mapped), reinterpret_cast<float4*>(out), n / 4);
    };
    launch_once(launch);
    std::vector<float> from = to_host(values, n);
    double error = sampled_error(to_host(out, n), [&](size_t i) { return from[i] * weights[i]; }, 2000000);
    return report("faults/k-port", median_us(launch, reps), 0, 12.0 * n, error, 0);
}
