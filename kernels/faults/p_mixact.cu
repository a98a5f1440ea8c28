// A layer whose channels have different activations (a searched architecture): y = f_c(gain_c x + bias_c).
// --variant fault: the kinds are mixed over the channels; fix: channels are sorted by kind when the network is exported.
#include "p_harness.cuh"

enum Kind : uint8_t { kRelu, kGelu, kSilu, kTanh, kSoftplus, kMish, kKinds };

template <class T>
__device__ __forceinline__ T activate(int kind, T v) {
    switch (kind) {
        case kRelu: return v > 0 ? v : T(0);
        case kGelu: return T(0.5) * v * (T(1) + erf(v * T(0.70710678118654752)));
        case kSilu: return v / (T(1) + exp(-v));
        case kTanh: return tanh(v);
        case kSoftplus: return v > T(20) ? v : log1p(exp(v));
        default: return v * tanh(v > T(20) ? v : log1p(exp(v)));
    }
}

constexpr int kRows = 32;  // rows a block

__global__ void __launch_bounds__(256) mixed_activation(const float* __restrict__ x, float* __restrict__ y, const uint8_t* __restrict__ kinds,
                                                        const float2* __restrict__ affine, int channels) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    int kind = kinds[c];
    float2 a = affine[c];
    size_t at = size_t(blockIdx.y) * kRows * channels + c;
#pragma unroll 1
    for (int r = 0; r < kRows; r += 4) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = x[at + size_t(r + i) * channels];
#pragma unroll
        for (int i = 0; i < 4; ++i) y[at + size_t(r + i) * channels] = activate(kind, fmaf(a.x, v[i], a.y));
    }
}

struct Reference {
    const float* x;
    const uint8_t* kinds;
    const float2* affine;
    int channels;
    __device__ double operator()(size_t i) const {
        int c = int(i % channels);
        return activate<double>(kinds[c], double(affine[c].x) * x[i] + affine[c].y);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 16384, 1 << 17), channels = positive(args, "channels", 5000, 8192);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % kRows == 0, "--rows must be a multiple of 32");
    size_t n = size_t(rows) * channels;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    auto* affine = device_alloc<float2>(channels);
    fill_uniform(x, n, key, -3.0f, 3.0f);
    fill_uniform(reinterpret_cast<float*>(affine), size_t(channels) * 2, key + 1, 0.5f, 1.5f);
    std::vector<uint8_t> kinds(channels);
    for (int c = 0; c < channels; ++c) kinds[c] = uint8_t(diagnose_hash(key + 2 + c) % kKinds);
    if (fix) std::sort(kinds.begin(), kinds.end());
    uint8_t* device_kinds = to_device(kinds);
    poison(y, n * 4);
    auto launch = [&] {
        mixed_activation<<<dim3(blocks_for(channels, 256), rows / kRows), 256>>>(x, y, device_kinds, affine, channels);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{x, device_kinds, affine, channels});
    return report("faults/p-mixact", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
