// The scales of an e4m3 cache have grown: every value is brought to the new scale of its head, [token][head][128].
// --variant fault: a byte a lane, as the generic element-wise template falls back to; fix: sixteen.
#include <cuda_fp8.h>

#include "p_harness.cuh"

constexpr int kDim = 128;

__device__ __forceinline__ uint32_t rescale_two(uint32_t two, float ratio) {
    float2 v = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(two), __NV_E4M3)));
    return __nv_cvt_float2_to_fp8x2(make_float2(v.x * ratio, v.y * ratio), __NV_SATFINITE, __NV_E4M3);
}

__global__ void __launch_bounds__(256) rescale_cache(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, const float* __restrict__ old_scale,
                                                     const float* __restrict__ new_scale, unsigned n, unsigned head_mask) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned head = i / kDim & head_mask;
        out[i] = uint8_t(rescale_two(in[i], __fdividef(old_scale[head], new_scale[head])));
    }
}

__global__ void __launch_bounds__(256) rescale_cache_vector(const uint4* __restrict__ in, uint4* __restrict__ out, const float* __restrict__ old_scale,
                                                            const float* __restrict__ new_scale, unsigned n, unsigned head_mask) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += gridDim.x * blockDim.x) {
        unsigned head = i / (kDim / 16) & head_mask;
        float ratio = __fdividef(old_scale[head], new_scale[head]);
        uint4 raw = in[i];
        uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) w[j] = rescale_two(w[j] & 0xffffu, ratio) | rescale_two(w[j] >> 16, ratio) << 16;
        out[i] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// A plain kernel with the same conversions, a value at a time.
__global__ void reference_rescale(const uint8_t* in, uint8_t* out, const float* old_scale, const float* new_scale, unsigned n, unsigned head_mask) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned head = i / kDim & head_mask;
        float v = __half2float(__half(__nv_cvt_fp8_to_halfraw(in[i], __NV_E4M3)));
        out[i] = __nv_cvt_float_to_fp8(v * __fdividef(old_scale[head], new_scale[head]), __NV_SATFINITE, __NV_E4M3);
    }
}

__global__ void without_nan(uint8_t* data, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if ((data[i] & 0x7f) == 0x7f) data[i] = 0x30;
}

struct Same {
    const uint8_t* expected;
    __device__ double operator()(size_t i) const { return double(expected[i]); }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 262144, 1 << 20), heads_log2 = positive(args, "heads_log2", 3, 6);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    const unsigned heads = 1u << heads_log2;
    require((size_t(tokens) << heads_log2) * kDim < (1ull << 31), "the cache must be smaller than 2 GiB");
    const unsigned n = unsigned(tokens) * heads * kDim;
    uint8_t *in = device_alloc<uint8_t>(n), *out = device_alloc<uint8_t>(n), *expected = device_alloc<uint8_t>(n);
    float *old_scale = device_alloc<float>(heads), *new_scale = device_alloc<float>(heads);
    fill_uniform(in, size_t(n), key, 0.0f, 1.0f);
    without_nan<<<2048, 256>>>(in, n);
    fill_uniform(old_scale, size_t(heads), key + 1, 0.5f, 1.0f);
    fill_uniform(new_scale, size_t(heads), key + 2, 1.0f, 2.0f);
    poison(out, n);
    reference_rescale<<<2048, 256>>>(in, expected, old_scale, new_scale, n, heads - 1);
    auto launch = [&] {
        if (fix) rescale_cache_vector<<<132 * 16, 256>>>(reinterpret_cast<uint4*>(in), reinterpret_cast<uint4*>(out), old_scale, new_scale, n, heads - 1);
        else rescale_cache<<<132 * 16, 256>>>(in, out, old_scale, new_scale, n, heads - 1);
    };
    launch_once(launch);
    double error = device_error(out, size_t(n), Same{expected});
    return report("faults/p-rescale", median_us(launch, reps), 0, 2.0 * n, error, 0);
}
