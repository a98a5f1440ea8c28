// Causal convolution of each channel with its own filter of 256 taps (the short end of a long-convolution model), fp32 [channel][time].
// A block takes 2048 steps of a channel; inputs and taps wait in shared memory.
#include "p_harness.cuh"

constexpr int kTaps = 256, kTile = 2048;

// An output a thread and turn: two shared reads a product.
__global__ void __launch_bounds__(256) long_filter(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y, int time) {
    __shared__ float window[kTile + kTaps];
    __shared__ float w[kTaps];
    int channel = blockIdx.y, first = blockIdx.x * kTile;
    const float* row = x + size_t(channel) * time;
    for (int i = threadIdx.x; i < kTile + kTaps; i += 256) {
        int t = first - kTaps + i;
        window[i] = t < 0 ? 0.0f : row[t];
    }
    w[threadIdx.x] = taps[size_t(channel) * kTaps + threadIdx.x];
    __syncthreads();
    for (int o = threadIdx.x; o < kTile; o += 256) {
        float sum = 0;
#pragma unroll 8
        for (int j = 0; j < kTaps; ++j) sum = fmaf(w[j], window[kTaps + o - j], sum);
        y[size_t(channel) * time + first + o] = sum;
    }
}

// Eight neighbouring outputs a thread; eight taps at a time meet fifteen inputs that are in registers.
__global__ void __launch_bounds__(256) long_filter_window(const float* __restrict__ x, const float* __restrict__ taps, float* __restrict__ y,
                                                          int time) {
    // Four unused words after every 32: eight lanes that are 32 bytes apart then read 16 bytes each from different banks.
    __shared__ __align__(16) float window[(kTile + kTaps) / 32 * 36];
    __shared__ __align__(16) float w[kTaps];
    auto place = [](int i) { return i + i / 32 * 4; };
    int channel = blockIdx.y, first = blockIdx.x * kTile;
    const float* row = x + size_t(channel) * time;
    for (int i = threadIdx.x; i < kTile + kTaps; i += 256) {
        int t = first - kTaps + i;
        window[place(i)] = t < 0 ? 0.0f : row[t];
    }
    w[threadIdx.x] = taps[size_t(channel) * kTaps + threadIdx.x];
    __syncthreads();
    int o = threadIdx.x * 8;
    float sum[8] = {}, near[8], far[8];  // inputs o - j .. o - j + 7 of the step's first tap, and the eight before them
    auto load = [&](float (&to)[8], int i) {
        float4 a = *reinterpret_cast<const float4*>(&window[place(i)]), b = *reinterpret_cast<const float4*>(&window[place(i) + 4]);
        to[0] = a.x; to[1] = a.y; to[2] = a.z; to[3] = a.w;
        to[4] = b.x; to[5] = b.y; to[6] = b.z; to[7] = b.w;
    };
    load(near, kTaps + o);
#pragma unroll 4
    for (int j = 0; j < kTaps; j += 8) {
        load(far, kTaps + o - j - 8);
        float4 w0 = *reinterpret_cast<const float4*>(&w[j]), w1 = *reinterpret_cast<const float4*>(&w[j + 4]);
        float tap[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
#pragma unroll
        for (int k = 0; k < 8; ++k)
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] = fmaf(tap[k], i >= k ? near[i >= k ? i - k : 0] : far[i < k ? 8 + i - k : 0], sum[i]);
#pragma unroll
        for (int i = 0; i < 8; ++i) near[i] = far[i];
    }
    float4* to = reinterpret_cast<float4*>(y + size_t(channel) * time + first + o);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

struct Reference {
    const float *x, *taps;
    int time;
    __device__ double operator()(size_t i) const {
        int t = int(i % time);
        double sum = 0;
        for (int j = 0; j < kTaps && j <= t; ++j) sum += double(taps[i / time * kTaps + j]) * x[i - j];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int channels = positive(args, "channels", 4224, 65535), time = positive(args, "time", 8192, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(time % kTile == 0, "--time must be a multiple of 2048");
    size_t n = size_t(channels) * time;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n), *taps = device_alloc<float>(size_t(channels) * kTaps);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(taps, size_t(channels) * kTaps, key + 1, -1.0f, 1.0f);
    poison(y, n * 4);
    auto launch = [&] {
        auto kernel = fix ? long_filter_window : long_filter;
        kernel<<<dim3(time / kTile, channels), 256>>>(x, taps, y, time);
    };
    launch_once(launch);
    double error = sample_error(y, n, Reference{x, taps, time}, 262144);
    return report("faults/p-longconv", median_us(launch, reps), 2.0 * n * kTaps, 0, error, 1e-5);
}
