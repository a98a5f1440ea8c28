// Depthwise 7 x 7 convolution with bias, channels last (the first layer of a ConvNeXt block), zero padding, fp32; a lane a channel.
#include "p_harness.cuh"

constexpr int kSide = 7, kReach = 3, kStrip = 8, kChannels = 128;

// An output a thread: 49 inputs and 49 weights are loaded for 49 products.
__global__ void __launch_bounds__(kChannels) depthwise(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
                                                       float* __restrict__ y, int height, int width) {
    const int c = threadIdx.x, column = blockIdx.x, line = blockIdx.y;
    const size_t place = (size_t(blockIdx.z) * height + line) * width + column;
    const float *centre = x + place * kChannels + c, *taps = w + c;
    float sum = bias[c];
#pragma unroll 1
    for (int i = 0; i < kSide; ++i, taps += kSide * kChannels) {
        if (unsigned(line + i - kReach) >= unsigned(height)) continue;
        const float* from = centre + (i - kReach) * width * kChannels;
#pragma unroll
        for (int j = 0; j < kSide; ++j)
            if (unsigned(column + j - kReach) < unsigned(width)) sum = fmaf(taps[j * kChannels], from[(j - kReach) * kChannels], sum);
    }
    y[place * kChannels + c] = sum;
}

// Eight outputs of a line a thread: 14 inputs and 7 weights for 56 products.
__global__ void __launch_bounds__(kChannels) depthwise_strip(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
                                                             float* __restrict__ y, int height, int width) {
    const int c = threadIdx.x, column = blockIdx.x * kStrip, line = blockIdx.y;
    const size_t place = (size_t(blockIdx.z) * height + line) * width + column;
    const float *centre = x + place * kChannels + c, *taps = w + c;
    float sum[kStrip];
#pragma unroll
    for (int o = 0; o < kStrip; ++o) sum[o] = bias[c];
#pragma unroll 1
    for (int i = 0; i < kSide; ++i, taps += kSide * kChannels) {
        if (unsigned(line + i - kReach) >= unsigned(height)) continue;
        const float* from = centre + (i - kReach) * width * kChannels;
        float in[kStrip + kSide - 1];
#pragma unroll
        for (int j = 0; j < kStrip + kSide - 1; ++j)
            in[j] = unsigned(column + j - kReach) < unsigned(width) ? from[(j - kReach) * kChannels] : 0.0f;
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
            float tap = taps[j * kChannels];
#pragma unroll
            for (int o = 0; o < kStrip; ++o) sum[o] = fmaf(tap, in[o + j], sum[o]);
        }
    }
#pragma unroll
    for (int o = 0; o < kStrip; ++o) y[(place + o) * kChannels + c] = sum[o];
}

struct Reference {
    const float *x, *w, *bias;
    int height, width;
    __device__ double operator()(size_t at) const {
        int c = int(at % kChannels), column = int(at / kChannels % width), line = int(at / kChannels / width % height);
        size_t image = at / kChannels / width / height * height;
        double sum = bias[c];
        for (int i = 0; i < kSide; ++i)
            for (int j = 0; j < kSide; ++j) {
                int r = line + i - kReach, q = column + j - kReach;
                if (r >= 0 && r < height && q >= 0 && q < width)
                    sum += double(w[(i * kSide + j) * kChannels + c]) * x[((image + r) * width + q) * kChannels + c];
            }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int images = positive(args, "images", 64, 1024), height = positive(args, "height", 56, 255), width = positive(args, "width", 56, 255);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % kStrip == 0, "--width must be a multiple of 8");
    const int channels = kChannels;
    size_t n = size_t(images) * height * width * channels;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n), *w = device_alloc<float>(size_t(kSide) * kSide * channels);
    float* bias = device_alloc<float>(channels);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(w, size_t(kSide) * kSide * channels, key + 1, -1.0f, 1.0f);
    fill_uniform(bias, size_t(channels), key + 2, -1.0f, 1.0f);
    poison(y, n * 4);
    auto launch = [&] {
        if (fix) depthwise_strip<<<dim3(width / kStrip, height, images), kChannels>>>(x, w, bias, y, height, width);
        else depthwise<<<dim3(width, height, images), kChannels>>>(x, w, bias, y, height, width);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{x, w, bias, height, width});
    return report("faults/p-depthwise", median_us(launch, reps), 98.0 * n, 0, error, 1e-5);
}
