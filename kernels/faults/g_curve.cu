// A tone curve, the mean of eight powers of every bf16 sample: one logarithm and eight exponentials each, all fast.
#include "g_util.cuh"
using namespace held;

// Eight bf16 values at a time.
template <class F>
__device__ __forceinline__ void map_eight(const uint4* in, uint4* out, size_t i, F f) {
    uint4 v = __ldcs(in + i);
    uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        __nv_bfloat162 r = __floats2bfloat162_rn(f(__uint_as_float(w[j] << 16)), f(__uint_as_float(w[j] & 0xffff0000u)));
        w[j] = *reinterpret_cast<uint32_t*>(&r);
    }
    __stcs(out + i, make_uint4(w[0], w[1], w[2], w[3]));
}

__global__ void __launch_bounds__(256) tone_curve(const uint4* in, uint4* out, size_t n) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    map_eight(in, out, i, [](float x) {
        float l = lg2(x), y = 0;
#pragma unroll
        for (int g = 0; g < 8; ++g) y += ex2(l * (0.3f + 0.2f * g));
        return y * 0.125f;
    });
}

__global__ void reference_values(const __nv_bfloat16* in, __nv_bfloat16* out, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double x = as_double(in[i]);
        out[i] = __nv_bfloat16(float((pow(x, 0.3) + pow(x, 0.5) + pow(x, 0.7) + pow(x, 0.9) + pow(x, 1.1) + pow(x, 1.3) + pow(x, 1.5) + pow(x, 1.7)) / 8));
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    long long n = args.get("n", 134217728);
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= (1ll << 30) && n % 8 == 0, "--n must be a multiple of 8, at most 2^30");
    __nv_bfloat16 *in = device_alloc<__nv_bfloat16>(n), *out = device_alloc<__nv_bfloat16>(n), *ref = device_alloc<__nv_bfloat16>(n);
    fill_uniform(in, n, s, 0.01f, 4.0f);
    reference_values<<<1056, 256>>>(in, ref, n);
    poison(out, n * sizeof(__nv_bfloat16));
    finish();
    auto launch = [&] {
        tone_curve<<<unsigned((n / 8 + 255) / 256), 256>>>(reinterpret_cast<const uint4*>(in), reinterpret_cast<uint4*>(out), size_t(n) / 8);
    };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-curve", median_us(launch, reps), 0, 4.0 * double(n), error, 2e-2);
}
