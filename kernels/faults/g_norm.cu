// Normalises every channel (batch normalisation, [channel][sample]). `fault` reads a channel three times (mean, variance,
// output); `fix` keeps it in shared memory between the passes.
#include "g_util.cuh"
using namespace held;

constexpr int kSamples = 49152;

__device__ float block_sum(float v, float* scratch) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[threadIdx.x % 32];
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

template <bool KEEP>
__global__ void __launch_bounds__(1024, KEEP ? 1 : 2) channel_norm(const float* in, const float* gain, const float* bias, float* out) {
    extern __shared__ float4 kept[];
    __shared__ float scratch[32];
    const float4* from = reinterpret_cast<const float4*>(in + size_t(blockIdx.x) * kSamples);
    float4* to = reinterpret_cast<float4*>(out + size_t(blockIdx.x) * kSamples);
    constexpr int COUNT = kSamples / 4096;
    float sum = 0;
#pragma unroll 6
    for (int i = 0; i < COUNT; ++i) {
        float4 v = from[threadIdx.x + i * 1024];
        if (KEEP) kept[threadIdx.x + i * 1024] = v;
        sum += (v.x + v.y) + (v.z + v.w);
    }
    float mean = block_sum(sum, scratch) * (1.0f / kSamples);
    sum = 0;
#pragma unroll 6
    for (int i = 0; i < COUNT; ++i) {
        float4 v = KEEP ? kept[threadIdx.x + i * 1024] : from[threadIdx.x + i * 1024];
        float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
        sum += (a * a + b * b) + (c * c + d * d);
    }
    float scale = rsqrtf(block_sum(sum, scratch) * (1.0f / kSamples) + 1e-5f) * gain[blockIdx.x], shift = bias[blockIdx.x];
#pragma unroll 6
    for (int i = 0; i < COUNT; ++i) {
        float4 v = KEEP ? kept[threadIdx.x + i * 1024] : from[threadIdx.x + i * 1024];
        to[threadIdx.x + i * 1024] = make_float4((v.x - mean) * scale + shift, (v.y - mean) * scale + shift,
                                                 (v.z - mean) * scale + shift, (v.w - mean) * scale + shift);
    }
}

__global__ void reference_norm(const float* in, const float* gain, const float* bias, float* out) {
    __shared__ double s1[256], s2[256];
    const float* from = in + size_t(blockIdx.x) * kSamples;
    double a = 0, b = 0;
    for (int i = threadIdx.x; i < kSamples; i += 256) {
        double v = from[i];
        a += v;
        b += v * v;
    }
    s1[threadIdx.x] = a;
    s2[threadIdx.x] = b;
    __syncthreads();
    a = b = 0;
    for (int i = 0; i < 256; ++i) a += s1[i], b += s2[i];
    double mean = a / kSamples, var = b / kSamples - mean * mean;
    for (int i = threadIdx.x; i < kSamples; i += 256)
        out[size_t(blockIdx.x) * kSamples + i] = float((from[i] - mean) / sqrt(var + 1e-5) * gain[blockIdx.x] + bias[blockIdx.x]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int channels = int(args.get("channels", 2112));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(channels > 0 && channels <= 32768, "--channels out of range");
    size_t n = size_t(channels) * kSamples;
    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(n);
    float* ref = device_alloc<float>(n);
    float* gain = device_alloc<float>(channels);
    float* bias = device_alloc<float>(channels);
    fill_uniform(in, n, s, -1.0f, 3.0f);
    fill_uniform(gain, channels, s + 1, 0.5f, 1.5f);
    fill_uniform(bias, channels, s + 2, -1.0f, 1.0f);
    reference_norm<<<channels, 256>>>(in, gain, bias, ref);
    poison(out, n * 4);
    finish();
    auto kernel = fix ? channel_norm<true> : channel_norm<false>;
    size_t shared = fix ? kSamples * 4 : 0;
    allow_shared(kernel, shared);
    auto launch = [&] { kernel<<<channels, 1024, shared>>>(in, gain, bias, out); };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-norm", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-4);
}
