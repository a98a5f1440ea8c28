// The vertical pass of a Gaussian blur with 33 taps over a float picture. `fault` loads all 33 rows for every pixel, `fix` keeps them
// in registers for 48 pixels of a column. The weights are uniform in constant memory in both.
#include "h_harness.cuh"

constexpr int kRadius = 16, kTaps = 2 * kRadius + 1, kRun = 48;

__constant__ float kWeight[kTaps];

// Sixteen more rows above and below, so that nothing is clamped; two pixels a thread.
struct Picture {
    const float2* pixel;
    int pairs, height;
    __device__ __forceinline__ float2 at(int x, int padded_row) const { return __ldg(pixel + size_t(padded_row) * pairs + x); }
};

__device__ __forceinline__ void add(float2& sum, float weight, float2 v) {
    sum.x = fmaf(weight, v.x, sum.x);
    sum.y = fmaf(weight, v.y, sum.y);
}

__global__ void __launch_bounds__(256) blur_direct(Picture in, float2* __restrict__ out) {
    int x = blockIdx.x * 32 + threadIdx.x % 32, y = blockIdx.y * 8 + threadIdx.x / 32;
    if (x >= in.pairs || y >= in.height) return;
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int t = 0; t < kTaps; ++t) add(sum, kWeight[t], in.at(x, y + t));
    out[size_t(y) * in.pairs + x] = sum;
}

// A thread 48 rows: each row read goes to all sums that need it, at most 33 of which are open.
__global__ void __launch_bounds__(256, 2) blur_columns(Picture in, float2* __restrict__ out) {
    int x = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y * kRun;
    if (x >= in.pairs) return;
    float2 sum[kRun] = {};
#pragma unroll
    for (int r = 0; r < kRun + 2 * kRadius; ++r) {
        float2 v = in.at(x, y + r);
#pragma unroll
        for (int i = 0; i < kRun; ++i)
            if (r - i >= 0 && r - i < kTaps) add(sum[i], kWeight[r - i], v);
        if (r >= 2 * kRadius) out[size_t(y + r - 2 * kRadius) * in.pairs + x] = sum[r - 2 * kRadius];
    }
}

struct Reference {
    const float* pixel;
    int width;
    float weight[kTaps];
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int t = 0; t < kTaps; ++t) sum += double(weight[t]) * double(pixel[i + size_t(t) * width]);
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int width = positive(args, "width", 12000, 1 << 16), height = positive(args, "height", 8064, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % 2 == 0 && height % kRun == 0, "--width must be even, --height a multiple of 48");
    size_t n = size_t(width) * height, padded = size_t(width) * (height + 2 * kRadius);
    float *pixel = device_alloc<float>(padded), *out = device_alloc<float>(n);
    fill_uniform(pixel, padded, key, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    Reference reference{pixel, width, {}};
    double total = 0;
    for (int t = 0; t < kTaps; ++t) total += std::exp(-0.5 * (t - kRadius) * (t - kRadius) / 36.0);
    for (int t = 0; t < kTaps; ++t) reference.weight[t] = float(std::exp(-0.5 * (t - kRadius) * (t - kRadius) / 36.0) / total);
    CHECK_CUDA(cudaMemcpyToSymbol(kWeight, reference.weight, sizeof reference.weight));
    Picture in{reinterpret_cast<float2*>(pixel), width / 2, height};
    auto launch = [&] {
        auto* to = reinterpret_cast<float2*>(out);
        if (fix) blur_columns<<<dim3(blocks_for(width / 2, 256), height / kRun), 256>>>(in, to);
        else blur_direct<<<dim3(blocks_for(width / 2, 32), blocks_for(height, 8)), 256>>>(in, to);
    };
    launch_once(launch);
    double error = device_error(out, n, reference);
    return report("faults/n-gauss", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
