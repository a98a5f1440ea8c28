// A bank of 64 one-pole filters over one signal a thread: launch bounds for 32 blocks an SM leave 32 registers for the
// 64 states, or the thread gets as many as it needs.
#include "memory.cuh"

constexpr int FILTERS = 64, THREADS = 64;

__host__ __device__ constexpr float decay(int k) { return 0.5f + 0.0075f * float(k); }

__device__ __forceinline__ void run_bank(const float* __restrict__ signal, float* __restrict__ out, int signals,
                                         int length) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    const float* from = signal + i;
    float state[FILTERS], next[4];
#pragma unroll
    for (int k = 0; k < FILTERS; ++k) state[k] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) next[j] = from[size_t(j) * signals];
#pragma unroll 1
    for (int t = 4; t <= length; t += 4) {
        float x[4] = {next[0], next[1], next[2], next[3]};
        if (t < length) {
#pragma unroll
            for (int j = 0; j < 4; ++j) next[j] = from[size_t(t + j) * signals];
        }
#pragma unroll
        for (int k = 0; k < FILTERS; ++k)
#pragma unroll
            for (int j = 0; j < 4; ++j) state[k] = fmaf(state[k], decay(k), x[j]);
    }
    float total = 0;
#pragma unroll
    for (int k = 0; k < FILTERS; ++k) total += state[k];
    out[i] = total;
}

__global__ void __launch_bounds__(THREADS, 32) filter_bank_wide(const float* signal, float* out, int signals, int length) {
    run_bank(signal, out, signals, length);
}

__global__ void __launch_bounds__(THREADS) filter_bank_tall(const float* signal, float* out, int signals, int length) {
    run_bank(signal, out, signals, length);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    int signals = int(size_arg(args, "signals", 132 * 96 * THREADS, THREADS));
    int length = int(size_arg(args, "length", 64, 4));
    require(signals <= (1 << 24) && length <= (1 << 16), "--signals is at most 2^24, --length 2^16");
    args.done();
    size_t samples = size_t(signals) * length;
    auto signal = device_alloc<float>(samples), out = device_alloc<float>(signals);
    fill_uniform(signal, samples, s, -1, 1);
    poison(out, size_t(signals) * 4);
    auto launch = [&] {
        if (fault) filter_bank_wide<<<signals / THREADS, THREADS>>>(signal, out, signals, length);
        else filter_bank_tall<<<signals / THREADS, THREADS>>>(signal, out, signals, length);
    };
    run_once(launch);
    // The sum of the states is one weighted sum of the samples; the weights are sums of powers of the decays.
    std::vector<double> weight(length), ref(signals);
    for (int k = 0; k < FILTERS; ++k) {
        double power = 1;
        for (int t = length - 1; t >= 0; --t, power *= double(decay(k))) weight[t] += power;
    }
    auto h = to_host(signal, samples);
    for (int t = 0; t < length; ++t)
        for (int i = 0; i < signals; ++i) ref[i] += weight[t] * h[size_t(t) * signals + i];
    return report(fault ? "faults/filter-bank-wide" : "faults/filter-bank-tall", median_us(launch, r),
                  2.0 * FILTERS * samples, 4.0 * samples, relative_error(to_host(out, signals), ref), 1e-5);
}
