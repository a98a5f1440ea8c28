// Causal depthwise filter of 16 taps along time, bf16 [batch][time][channel], two channels a thread, as a state space block has it before
// its scan. A block walks a chunk of time with the last 16 inputs at hand.
#include "p_harness.cuh"

constexpr int kTaps = 16, kChunk = 256;

struct Taps {
    float2 w[kTaps];
    __device__ Taps(const float* weights, int c, int channels) {
#pragma unroll
        for (int j = 0; j < kTaps; ++j) w[j] = *reinterpret_cast<const float2*>(weights + size_t(j) * channels + c);
    }
};

// The inputs lie in a ring that is entered at a moving place.
__global__ void __launch_bounds__(128) causal_filter(const uint32_t* __restrict__ x, uint32_t* __restrict__ y, const float* __restrict__ weights,
                                                     int time, int channels) {
    int c = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * kChunk;
    size_t stride = channels / 2, base = size_t(blockIdx.z) * time * stride + c;
    Taps taps(weights, 2 * c, channels);
    float2 ring[kTaps];
    for (int t = first - kTaps + 1; t < first; ++t) ring[t & (kTaps - 1)] = t < 0 ? make_float2(0, 0) : p_unpack(x[base + t * stride]);
#pragma unroll 1
    for (int t = first; t < first + kChunk; ++t) {
        ring[t & (kTaps - 1)] = p_unpack(x[base + t * stride]);
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
            float2 v = ring[(t - j) & (kTaps - 1)];
            sum.x = fmaf(taps.w[j].x, v.x, sum.x);
            sum.y = fmaf(taps.w[j].y, v.y, sum.y);
        }
        __nv_bfloat162 out = __floats2bfloat162_rn(sum.x, sum.y);
        y[base + t * stride] = *reinterpret_cast<uint32_t*>(&out);
    }
}

// Sixteen steps at a time: each place in the ring is known when the code is compiled.
__global__ void __launch_bounds__(128) causal_filter_unrolled(const uint32_t* __restrict__ x, uint32_t* __restrict__ y,
                                                              const float* __restrict__ weights, int time, int channels) {
    int c = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * kChunk;
    size_t stride = channels / 2, base = size_t(blockIdx.z) * time * stride + c;
    Taps taps(weights, 2 * c, channels);
    float2 ring[kTaps];
    ring[0] = make_float2(0, 0);
#pragma unroll
    for (int i = 1; i < kTaps; ++i) {
        int t = first - kTaps + i;
        ring[i] = t < 0 ? make_float2(0, 0) : p_unpack(x[base + t * stride]);
    }
#pragma unroll 1
    for (int t = first; t < first + kChunk; t += kTaps) {
        uint32_t raw[kTaps];
#pragma unroll
        for (int i = 0; i < kTaps; ++i) raw[i] = x[base + (t + i) * stride];
#pragma unroll
        for (int i = 0; i < kTaps; ++i) {
            ring[i] = p_unpack(raw[i]);
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int j = 0; j < kTaps; ++j) {
                float2 v = ring[(i - j) & (kTaps - 1)];
                sum.x = fmaf(taps.w[j].x, v.x, sum.x);
                sum.y = fmaf(taps.w[j].y, v.y, sum.y);
            }
            __nv_bfloat162 out = __floats2bfloat162_rn(sum.x, sum.y);
            y[base + (t + i) * stride] = *reinterpret_cast<uint32_t*>(&out);
        }
    }
}

struct Reference {
    const __nv_bfloat16* x;
    const float* weights;
    int time, channels;
    __device__ double operator()(size_t i) const {
        int c = int(i % channels), t = int(i / channels % time);
        double sum = 0;
        for (int j = 0; j < kTaps && j <= t; ++j)
            sum += double(weights[size_t(j) * channels + c]) * double(__bfloat162float(x[i - size_t(j) * channels]));
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int batch = positive(args, "batch", 16, 256), time = positive(args, "time", 4096, 65536), channels = positive(args, "channels", 4096, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(time % kChunk == 0 && channels % 256 == 0, "--time and --channels must be multiples of 256");
    size_t n = size_t(batch) * time * channels;
    auto *x = device_alloc<__nv_bfloat16>(n), *y = device_alloc<__nv_bfloat16>(n);
    float* weights = device_alloc<float>(size_t(kTaps) * channels);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(weights, size_t(kTaps) * channels, key + 1, -1.0f, 1.0f);
    poison(y, n * 2);
    auto launch = [&] {
        auto kernel = fix ? causal_filter_unrolled : causal_filter;
        kernel<<<dim3(channels / 256, time / kChunk, batch), 128>>>(reinterpret_cast<uint32_t*>(x), reinterpret_cast<uint32_t*>(y), weights,
                                                                    time, channels);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{x, weights, time, channels});
    return report("faults/p-fir", median_us(launch, reps), 0, 4.0 * n, error, 4e-3);
}
