// GELU on floats. `fault` has its constants written without the f, `fix` with it.
#include "g_util.cuh"
using namespace held;

template <bool SUFFIX>
__device__ __forceinline__ float gelu(float x) {
    if (SUFFIX) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
}

template <bool SUFFIX>
__global__ void __launch_bounds__(256) gelu_forward(const float4* in, float4* out, size_t n) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    out[i] = make_float4(gelu<SUFFIX>(v.x), gelu<SUFFIX>(v.y), gelu<SUFFIX>(v.z), gelu<SUFFIX>(v.w));
}

__global__ void reference_values(const float* in, float* out, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double x = as_double(in[i]);
        out[i] = float(float(0.5 * x * (1.0 + erf(x * 0.7071067811865476))));
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    long long n = args.get("n", 67108864);
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= (1ll << 30) && n % 8 == 0, "--n must be a multiple of 8, at most 2^30");
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n), *ref = device_alloc<float>(n);
    fill_uniform(in, n, s, -4.0f, 4.0f);
    reference_values<<<1056, 256>>>(in, ref, n);
    poison(out, n * sizeof(float));
    finish();
    auto kernel = fix ? gelu_forward<true> : gelu_forward<false>;
    auto launch = [&] {
        kernel<<<unsigned((n / 4 + 255) / 256), 256>>>(reinterpret_cast<const float4*>(in), reinterpret_cast<float4*>(out), size_t(n) / 4);
    };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-gelu", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
