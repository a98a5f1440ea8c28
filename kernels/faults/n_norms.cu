// Windowed power of radar pulses of 512 samples, in decibels. `fault` has a block a pulse that adds up through a tree in shared memory
// (the next pulse's samples are fetched before, so that memory does not wait), `fix` a warp a pulse.
#include "h_harness.cuh"

constexpr int kLength = 512;

__device__ __forceinline__ float decibel(float power, float floor) { return 3.01029996f * __log2f(fmaxf(power, floor)); }

__global__ void __launch_bounds__(kLength) pulse_power_tree(const float* __restrict__ pulses, const float* __restrict__ window,
                                                            float* __restrict__ out, int count, float floor) {
    __shared__ float sums[kLength];
    int t = threadIdx.x;
    float w = window[t], next = blockIdx.x < count ? pulses[size_t(blockIdx.x) * kLength + t] : 0.0f;
    for (int p = blockIdx.x; p < count; p += gridDim.x) {
        float v = next * w;
        int q = min(p + int(gridDim.x), count - 1);
        next = pulses[size_t(q) * kLength + t];
        sums[t] = v * v;
        __syncthreads();
        for (int s = kLength / 2; s > 0; s /= 2) {
            if (t < s) sums[t] += sums[t + s];
            __syncthreads();
        }
        if (t == 0) out[p] = decibel(sums[0], floor);
        __syncthreads();
    }
}

__global__ void __launch_bounds__(kLength) pulse_power_warp(const float* __restrict__ pulses, const float* __restrict__ window,
                                                            float* __restrict__ out, int count, float floor) {
    constexpr int kWarps = kLength / 32, kQuads = kLength / 128;
    int lane = threadIdx.x % 32;
    float4 w[kQuads];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) w[i] = reinterpret_cast<const float4*>(window)[i * 32 + lane];
    for (int p = blockIdx.x * kWarps + threadIdx.x / 32; p < count; p += gridDim.x * kWarps) {
        const float4* row = reinterpret_cast<const float4*>(pulses + size_t(p) * kLength);
        float4 v[kQuads];
#pragma unroll
        for (int i = 0; i < kQuads; ++i) v[i] = row[i * 32 + lane];
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
            float x = v[i].x * w[i].x, y = v[i].y * w[i].y, z = v[i].z * w[i].z, u = v[i].w * w[i].w;
            sum += (x * x + y * y) + (z * z + u * u);
        }
        for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        if (lane == 0) out[p] = decibel(sum, floor);
    }
}

struct Reference {
    const float *pulses, *window;
    double floor;
    __device__ double operator()(size_t p) const {
        double sum = 0;
        for (int i = 0; i < kLength; ++i) {
            double v = double(pulses[p * kLength + i]) * double(window[i]);
            sum += v * v;
        }
        return 10.0 * log10(fmax(sum, floor));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int count = positive(args, "pulses", 524288, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(count) * kLength;
    float *pulses = device_alloc<float>(n), *window = device_alloc<float>(kLength), *out = device_alloc<float>(count);
    fill_uniform(pulses, n, key, -1.0f, 1.0f);
    fill_uniform(window, kLength, key + 1, 0.1f, 1.0f);
    poison(out, size_t(count) * sizeof(float));
    const float floor = 1e-6f;
    auto launch = [&] {
        if (fix) pulse_power_warp<<<528, kLength>>>(pulses, window, out, count, floor);
        else pulse_power_tree<<<528, kLength>>>(pulses, window, out, count, floor);
    };
    launch_once(launch);
    double error = device_error(out, count, Reference{pulses, window, double(floor)});
    return report("faults/n-norms", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-4);
}
