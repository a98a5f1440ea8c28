// y = W x with W in 4 bits (offset 8, an FP16 scale for 128 weights of a row), x in FP16. Within a row, 1024 weights at a
// time are stored so that word j of lane l's 16 bytes holds the weights (j * 32 + l) * 8 and on.
#include "h_harness.cuh"

constexpr int kThreads = 256, kMostK = 16384;

__device__ __half2 as_half2(unsigned word) {
    __half2 h;
    memcpy(&h, &word, 4);
    return h;
}

__global__ void __launch_bounds__(kThreads) project4(const uint4* __restrict__ w, const __half* __restrict__ scale,
                                                     const __half* __restrict__ x, float* __restrict__ y, int n, int k) {
    extern __shared__ uint4 xs[];
    for (int i = threadIdx.x; i < k / 8; i += kThreads) xs[i] = reinterpret_cast<const uint4*>(x)[i];
    __syncthreads();
    int lane = threadIdx.x % 32;
    for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < n; row += gridDim.x * 8) {
        const uint4* p = w + size_t(row) * (k / 32);
        const __half* s = scale + size_t(row) * (k / 128);
        float sum = 0;
        for (int it = 0; it < k / 1024; ++it) {
            uint4 q = p[it * 32 + lane];
            const unsigned word[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float scaling = __half2float(s[it * 8 + j * 2 + lane / 16]);
                uint4 v = xs[it * 128 + j * 32 + lane];
                const unsigned xw[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    float weight = (float(int((word[j] >> (4 * e)) & 15u)) - 8.0f) * scaling;
                    __half2 pair = as_half2(xw[e / 2]);
                    sum += weight * __half2float(e % 2 ? __high2half(pair) : __low2half(pair));
                }
            }
        }
        for (int t = 16; t; t >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, t);
        if (lane == 0) y[row] = sum;
    }
}

// Two weights at a time as FP16 with the bits put under an exponent; x is kept as pairs (e, e + 4).
__global__ void __launch_bounds__(kThreads) project4_packed(const uint4* __restrict__ w, const __half* __restrict__ scale,
                                                            const __half* __restrict__ x, float* __restrict__ y, int n,
                                                            int k) {
    extern __shared__ uint4 xs[];
    for (int i = threadIdx.x; i < k / 8; i += kThreads) {
        uint4 v = reinterpret_cast<const uint4*>(x)[i];
        xs[i] = make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                           __byte_perm(v.y, v.w, 0x7632));
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    const __half2 offset = __float2half2_rn(1032.0f);
    for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < n; row += gridDim.x * 8) {
        const uint4* p = w + size_t(row) * (k / 32);
        const __half* s = scale + size_t(row) * (k / 128);
        float sum = 0;
#pragma unroll 4
        for (int it = 0; it < k / 1024; ++it) {
            uint4 q = p[it * 32 + lane];
            const unsigned word[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float scaling = __half2float(s[it * 8 + j * 2 + lane / 16]);
                uint4 v = xs[it * 128 + j * 32 + lane];
                const unsigned xw[4] = {v.x, v.y, v.z, v.w};
                __half2 part = __float2half2_rn(0.0f);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    __half2 weight = __hsub2(as_half2(((word[j] >> (4 * e)) & 0x000f000fu) | 0x64006400u), offset);
                    part = __hfma2(weight, as_half2(xw[e]), part);
                }
                float2 both = __half22float2(part);
                sum += (both.x + both.y) * scaling;
            }
        }
        for (int t = 16; t; t >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, t);
        if (lane == 0) y[row] = sum;
    }
}

struct Reference {
    const unsigned* w;
    const __half *scale, *x;
    int k;
    __device__ double operator()(size_t row) const {
        double sum = 0;
        for (int c = 0; c < k; ++c) {
            int unit = c % 1024 / 8;  // the word of this group of 1024, in the order of x
            unsigned word = w[row * (k / 8) + c / 1024 * 128 + unit % 32 * 4 + unit / 32];
            int q = int((word >> (4 * (c % 8))) & 15u) - 8;
            sum += q * double(__half2float(scale[row * (k / 128) + c / 128])) * double(__half2float(x[c]));
        }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 50688, 1 << 18), k = 2 * positive(args, "rowbytes", 4096, kMostK / 2);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(k % 1024 == 0, "--rowbytes must be a multiple of 512");
    size_t words = size_t(n) * (k / 8);
    auto* w = device_alloc<uint8_t>(words * 4);
    auto *scale = device_alloc<__half>(size_t(n) * (k / 128)), *x = device_alloc<__half>(k);
    float* y = device_alloc<float>(n);
    fill_uniform(w, words * 4, key, 0.0f, 256.0f);
    fill_uniform(scale, size_t(n) * (k / 128), key + 1, 0.5f, 1.5f);
    fill_uniform(x, k, key + 2, -1.0f, 1.0f);
    poison(y, n * sizeof(float));
    auto launch = [&] {
        auto vectors = reinterpret_cast<uint4*>(w);
        if (fix) project4_packed<<<528, kThreads, k * 2>>>(vectors, scale, x, y, n, k);
        else project4<<<528, kThreads, k * 2>>>(vectors, scale, x, y, n, k);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{reinterpret_cast<unsigned*>(w), scale, x, k});
    double us = median_us(launch, reps);
    return report("faults/h-int4gemv", us, 0, double(words) * 4, error, 5e-3);
}
