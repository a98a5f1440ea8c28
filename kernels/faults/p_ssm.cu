// Selective scan of a state space layer, forward: h = exp(dt a) h + dt b x, y = c h + d x, with 16 states a channel.
// x and dt are [batch][time][channel], b and c [batch][time][16]. The occupancy that the block bounds ask for decides the registers.
#include "p_harness.cuh"

constexpr int kStates = 16, kSteps = 32;  // time steps of b and c that are staged together

template <int BLOCKS>
__device__ __forceinline__ void scan(const float* __restrict__ x, const float* __restrict__ dt, const float* __restrict__ a,
                                     const float* __restrict__ b, const float* __restrict__ c, const float* __restrict__ d, float* __restrict__ y,
                                     int time, int channels) {
    __shared__ __align__(16) float sb[kSteps][kStates], sc[kSteps][kStates];
    int channel = blockIdx.x * 128 + threadIdx.x;
    size_t at = size_t(blockIdx.y) * time * channels + channel, gate = size_t(blockIdx.y) * time * kStates;
    float h[kStates], rate[kStates], skip = d[channel];
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
        h[s] = 0;
        rate[s] = a[size_t(s) * channels + channel] * 1.44269504f;
    }
#pragma unroll 1
    for (int t0 = 0; t0 < time; t0 += kSteps) {
        __syncthreads();
        for (int i = threadIdx.x; i < kSteps * kStates; i += 128) {
            (&sb[0][0])[i] = b[gate + size_t(t0) * kStates + i];
            (&sc[0][0])[i] = c[gate + size_t(t0) * kStates + i];
        }
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < kSteps; ++k) {
            float v = x[at], step = dt[at], in = v * step, sum = skip * v;
#pragma unroll
            for (int s = 0; s < kStates; ++s) {
                float keep;
                asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(keep) : "f"(step * rate[s]));
                h[s] = fmaf(keep, h[s], in * sb[k][s]);
                sum = fmaf(sc[k][s], h[s], sum);
            }
            y[at] = sum;
            at += channels;
        }
    }
}

__global__ void __launch_bounds__(128, 16) selective_scan(const float* x, const float* dt, const float* a, const float* b, const float* c,
                                                          const float* d, float* y, int time, int channels) {
    scan<16>(x, dt, a, b, c, d, y, time, channels);
}

__global__ void __launch_bounds__(128, 8) selective_scan_relaxed(const float* x, const float* dt, const float* a, const float* b, const float* c,
                                                                 const float* d, float* y, int time, int channels) {
    scan<8>(x, dt, a, b, c, d, y, time, channels);
}

struct Reference {
    const float *x, *dt, *a, *b, *c, *d;
    int batch, time, channels;
    // Output i is the last time step of a (batch, channel): the end of the whole recurrence.
    __device__ double operator()(size_t i) const {
        int channel = int(i % channels);
        size_t n = i / channels;
        double h[kStates] = {}, sum = 0;
        for (int t = 0; t < time; ++t) {
            size_t at = (n * time + t) * channels + channel, gate = (n * time + t) * kStates;
            sum = double(d[channel]) * x[at];
            for (int s = 0; s < kStates; ++s) {
                h[s] = exp(double(dt[at]) * a[size_t(s) * channels + channel]) * h[s] + double(dt[at]) * x[at] * b[gate + s];
                sum += c[gate + s] * h[s];
            }
        }
        return sum;
    }
};

__global__ void last_step(const float* y, float* last, int time, int channels, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        last[i] = y[(i / channels * time + time - 1) * channels + i % channels];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int batch = positive(args, "batch", 66, 256), time = positive(args, "time", 1024, 16384), channels = positive(args, "channels", 4096, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(time % kSteps == 0 && channels % 128 == 0, "--time must be a multiple of 32, --channels of 128");
    size_t n = size_t(batch) * time * channels, gates = size_t(batch) * time * kStates, ends = size_t(batch) * channels;
    float *x = device_alloc<float>(n), *dt = device_alloc<float>(n), *y = device_alloc<float>(n), *last = device_alloc<float>(ends);
    float *a = device_alloc<float>(size_t(kStates) * channels), *b = device_alloc<float>(gates), *c = device_alloc<float>(gates);
    float* d = device_alloc<float>(channels);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(dt, n, key + 1, 0.01f, 0.2f);
    fill_uniform(a, size_t(kStates) * channels, key + 2, -4.0f, -0.1f);
    fill_uniform(b, gates, key + 3, -1.0f, 1.0f);
    fill_uniform(c, gates, key + 4, -1.0f, 1.0f);
    fill_uniform(d, size_t(channels), key + 5, -1.0f, 1.0f);
    poison(y, n * 4);
    auto launch = [&] {
        auto kernel = fix ? selective_scan_relaxed : selective_scan;
        kernel<<<dim3(channels / 128, batch), 128>>>(x, dt, a, b, c, d, y, time, channels);
    };
    launch_once(launch);
    last_step<<<512, 256>>>(y, last, time, channels, ends);
    CHECK_CUDA(cudaGetLastError());
    double error = sample_error(last, ends, Reference{x, dt, a, b, c, d, batch, time, channels}, 8192);
    return report("faults/p-ssm", median_us(launch, reps), 0, 12.0 * n, error, 1e-4);
}
