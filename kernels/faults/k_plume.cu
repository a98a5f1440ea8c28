// A flux limiter: each value takes one of two branches and one or two steps by its own size.
#include "h_harness.cuh"
#include "pair.cuh"

__host__ __device__ inline float limit(float v) {
    if (v > 0.0f) {
        float r = v;
        int turns = v > 0.5f ? 2 : 1;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
        for (int i = 0; i < turns; ++i) r = r * fmaf(-0.5f * r, r, 1.5f);
        return r;
    }
    return fmaf(v, fmaf(v, fmaf(v, 0.25f, 0.5f), 0.75f), -0.125f);
}

__global__ void __launch_bounds__(256) limiter(const float4* __restrict__ in, float4* __restrict__ out, int vectors) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= vectors) return;
    float4 v = in[i];
    out[i] = make_float4(limit(v.x), limit(v.y), limit(v.z), limit(v.w));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 134217728, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, size_t(n) * sizeof(float));
    auto launch = [&] { limiter<<<blocks_for(n / 4, 256), 256>>>(reinterpret_cast<float4*>(in), reinterpret_cast<float4*>(out), n / 4); };
    launch_once(launch);
    std::vector<float> from = to_host(in, n);
    double error = sampled_error(to_host(out, n), [&](size_t i) { return limit(from[i]); }, 1000000);
    return report("faults/k-plume", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
