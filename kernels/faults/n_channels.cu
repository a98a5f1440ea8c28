// Mean, power and peak of each of a dozen long sensor channels. `fault` gives a channel to one block, `fix` to 88; a small kernel
// puts the parts together in both.
#include "h_harness.cuh"

constexpr int kBlock = 512;

struct Part {
    double sum, square;
    float peak;
};

__device__ __forceinline__ Part joined(const Part& a, const Part& b) { return {a.sum + b.sum, a.square + b.square, fmaxf(a.peak, b.peak)}; }

__device__ __forceinline__ Part of_warp(Part p) {
    for (int s = 16; s; s >>= 1)
        p = joined(p, {__shfl_xor_sync(0xffffffffu, p.sum, s),
                       __shfl_xor_sync(0xffffffffu, p.square, s), __shfl_xor_sync(0xffffffffu, p.peak, s)});
    return p;
}

// Block (split, channel).
__global__ void __launch_bounds__(kBlock) channel_parts(const float4* __restrict__ samples, Part* __restrict__ parts, int quads, float offset) {
    __shared__ Part warps[kBlock / 32];
    const float4* channel = samples + size_t(blockIdx.y) * quads;
    double sum = 0, square = 0;
    float peak = 0;
    int stride = gridDim.x * kBlock;
    for (int base = blockIdx.x * kBlock + threadIdx.x; base < quads; base += stride * 8) {
        float s = 0, p = 0;
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            int q = base + u * stride;
            float4 v = q < quads ? channel[q] : make_float4(offset, offset, offset, offset);
            v = make_float4(v.x - offset, v.y - offset, v.z - offset, v.w - offset);
            s += (v.x + v.y) + (v.z + v.w);
            p += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
            peak = fmaxf(peak, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
        }
        sum += s;
        square += p;
    }
    Part mine = of_warp({sum, square, peak});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = of_warp(threadIdx.x < kBlock / 32 ? warps[threadIdx.x] : Part{0, 0, 0});
        if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = mine;
    }
}

__global__ void join_parts(const Part* parts, float* out, int splits, double samples) {
    Part all{0, 0, 0};
    for (int s = threadIdx.x; s < splits; s += 32) all = joined(all, parts[blockIdx.x * splits + s]);
    all = of_warp(all);
    if (threadIdx.x == 0) {
        out[blockIdx.x * 3] = float(all.sum / samples);
        out[blockIdx.x * 3 + 1] = float(sqrt(all.square / samples));
        out[blockIdx.x * 3 + 2] = all.peak;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int channels = positive(args, "channels", 12, 1024), samples = positive(args, "samples", 10485760, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(samples % 4 == 0, "--samples must be a multiple of 4");
    int splits = fix ? 88 : 1;
    size_t n = size_t(channels) * samples;
    float *data = device_alloc<float>(n), *out = device_alloc<float>(channels * 3);
    Part* parts = device_alloc<Part>(size_t(channels) * splits);
    fill_uniform(data, n, key, 0.0f, 1.5f);
    poison(out, channels * 3 * sizeof(float));
    const float offset = 0.5f;
    auto launch = [&] {
        channel_parts<<<dim3(splits, channels), kBlock>>>(reinterpret_cast<float4*>(data), parts, samples / 4, offset);
        join_parts<<<channels, 32>>>(parts, out, splits, samples);
    };
    launch_once(launch);
    std::vector<double> want;
    for (int c = 0; c < channels; ++c) {
        std::vector<float> host = to_host(data + size_t(c) * samples, samples);
        double sum = 0, square = 0;
        float peak = 0;
        for (float v : host) {
            float d = v - offset;
            sum += d;
            square += double(d) * d;
            peak = std::max(peak, std::fabs(d));
        }
        want.insert(want.end(), {sum / samples, std::sqrt(square / samples), peak});
    }
    double error = relative_error(to_host(out, channels * 3), want);
    return report("faults/n-channels", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-4);
}
