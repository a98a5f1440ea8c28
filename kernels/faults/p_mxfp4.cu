// Quantises float activations to MXFP4: blocks of 32 values share a power of two, each value becomes 4 bits (e2m1).
#include <cuda_fp4.h>

#include "p_harness.cuh"

struct LibraryRound {  // the toolkit's conversion, which has no instruction below sm_100
    static __device__ __forceinline__ uint32_t two(float a, float b) {
        return __nv_cvt_float2_to_fp4x2(make_float2(a, b), __NV_E2M1, cudaRoundNearest);
    }
};

struct BitRound {  // e2m1 is a float with two exponent bits: below 2^-126 the float's own code has the same steps
    static __device__ __forceinline__ uint32_t one(float v) {
        // Six is the largest; bits 22 and above become the code, to nearest even.
        uint32_t bits = __float_as_uint(fminf(fabsf(v), 6.0f) * 0x1p-126f);
        return (bits + 0x1fffffu + (bits >> 22 & 1u)) >> 22 | (__float_as_uint(v) >> 28 & 8u);
    }
    static __device__ __forceinline__ uint32_t two(float a, float b) { return one(a) | one(b) << 4; }
};

template <class Round>
__device__ __forceinline__ void quantise_eight(const float4* in, uint32_t* codes, uint8_t* scales, size_t i) {
    float4 low = in[2 * i], high = in[2 * i + 1];
    float2 pair[4] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
    float most = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) most = fmaxf(most, fmaxf(fabsf(pair[j].x), fabsf(pair[j].y)));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    // The largest value's exponent less 2, the exponent of 4 and 6; inputs are not that small that it would fall below 1.
    int biased = max(int(__float_as_uint(most) >> 23) - 2, 1);
    float inverse = __uint_as_float(uint32_t(254 - biased) << 23);
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) word |= (Round::two(pair[j].x * inverse, pair[j].y * inverse) & 0xffu) << (8 * j);
    codes[i] = word;
    if (i % 4 == 0) scales[i / 4] = uint8_t(biased);
}

__global__ void __launch_bounds__(256) quantise_mxfp4(const float4* __restrict__ in, uint32_t* __restrict__ codes, uint8_t* __restrict__ scales) {
    quantise_eight<LibraryRound>(in, codes, scales, size_t(blockIdx.x) * 256 + threadIdx.x);
}

__global__ void __launch_bounds__(256) quantise_mxfp4_direct(const float4* __restrict__ in, uint32_t* __restrict__ codes,
                                                             uint8_t* __restrict__ scales) {
    quantise_eight<BitRound>(in, codes, scales, size_t(blockIdx.x) * 256 + threadIdx.x);
}

__device__ const float kLevels[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

__global__ void decode(const uint8_t* codes, const uint8_t* scales, float* out, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        int code = codes[i / 2] >> (i % 2 * 4) & 15;
        out[i] = (code & 8 ? -1.0f : 1.0f) * kLevels[code & 7] * exp2f(float(scales[i / 32]) - 127.0f);
    }
}

struct Reference {
    const float* in;
    __device__ double operator()(size_t i) const {
        double most = 0;
        for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) most = fmax(most, fabs(double(in[j])));
        double scale = exp2(double(ilogb(most) - 2)), v = double(in[i]), a = fabs(v) / scale;
        int best = 0;
        for (int c = 1; c < 8; ++c) {
            double d = fabs(a - kLevels[c]), b = fabs(a - kLevels[best]);
            if (d < b || (d == b && c % 2 == 0)) best = c;
        }
        return (v < 0 ? -scale : scale) * kLevels[best];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 2048 == 0, "--n must be a multiple of 2048");
    auto* in = device_alloc<float>(n);
    auto *codes = device_alloc<uint8_t>(size_t(n) / 2), *scales = device_alloc<uint8_t>(size_t(n) / 32);
    float* out = device_alloc<float>(n);
    fill_uniform(in, size_t(n), key, -3.0f, 3.0f);
    poison(codes, size_t(n) / 2);
    poison(scales, size_t(n) / 32);
    auto launch = [&] {
        auto kernel = fix ? quantise_mxfp4_direct : quantise_mxfp4;
        kernel<<<n / 2048, 256>>>(reinterpret_cast<float4*>(in), reinterpret_cast<uint32_t*>(codes), scales);
    };
    launch_once(launch);
    decode<<<2048, 256>>>(codes, scales, out, size_t(n));
    CHECK_CUDA(cudaGetLastError());
    // A value a rounding of 2^-149 away from a tie may go the other way.
    double error = device_error(out, size_t(n), Reference{in});
    return report("faults/p-mxfp4", median_us(launch, reps), 0, 4.53125 * n, error, 1e-3);
}
