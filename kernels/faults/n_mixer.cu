// Turns complex samples back by their measured, unwrapped phase (up to a million radians). `fault` calls sincosf, which reduces
// such arguments in software, `fix` takes the turns out with three fused operations first.
#include "h_harness.cuh"

struct Library {
    static __device__ __forceinline__ void turn(float phase, float* s, float* c) { sincosf(phase, s, c); }
};

// 2 pi in three parts; the first product is exact for up to 2^18 turns.
struct Reduced {
    static __device__ __forceinline__ void turn(float phase, float* s, float* c) {
        float turns = rintf(phase * 0.159154943f);
        float r = fmaf(turns, -6.28318548f, phase);
        r = fmaf(turns, 1.74845553e-7f, r);
        *s = __sinf(r);
        *c = __cosf(r);
    }
};

template <class Phase>
__device__ __forceinline__ float4 rotate(float4 two, float2 phase, float gain) {
    float s, c, t, d;
    Phase::turn(phase.x, &s, &c);
    Phase::turn(phase.y, &t, &d);
    return make_float4(gain * (two.x * c + two.y * s), gain * (two.y * c - two.x * s), gain * (two.z * d + two.w * t),
                       gain * (two.w * d - two.z * t));
}

__global__ void __launch_bounds__(256) mixer_library(const float4* __restrict__ in, const float2* __restrict__ phase,
                                                     const float* __restrict__ gain, float4* __restrict__ out, int pairs, int per_channel) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= pairs) return;
    out[i] = rotate<Library>(in[i], phase[i], gain[i / per_channel]);
}

__global__ void __launch_bounds__(256) mixer_reduced(const float4* __restrict__ in, const float2* __restrict__ phase,
                                                     const float* __restrict__ gain, float4* __restrict__ out, int pairs, int per_channel) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= pairs) return;
    out[i] = rotate<Reduced>(in[i], phase[i], gain[i / per_channel]);
}

struct Reference {
    const float2* in;
    const float *phase, *gain;
    int per_channel;
    __device__ double operator()(size_t j) const {
        size_t i = j / 2;
        double s, c, g = gain[i / 2 / per_channel], x = in[i].x, y = in[i].y;
        sincos(double(phase[i]), &s, &c);
        return g * (j % 2 ? y * c - x * s : x * c + y * s);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 28), channels = positive(args, "channels", 24, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 2 == 0, "--n must be even");
    int pairs = n / 2, per_channel = (pairs + channels - 1) / channels;
    float *in = device_alloc<float>(size_t(n) * 2), *out = device_alloc<float>(size_t(n) * 2);
    float *phase = device_alloc<float>(n), *gain = device_alloc<float>(channels);
    fill_uniform(in, size_t(n) * 2, key, -1.0f, 1.0f);
    fill_uniform(phase, n, key + 1, 110000.0f, 1000000.0f);
    fill_uniform(gain, channels, key + 2, 0.5f, 2.0f);
    poison(out, size_t(n) * 2 * sizeof(float));
    auto launch = [&] {
        auto* x = reinterpret_cast<const float4*>(in);
        auto* p = reinterpret_cast<const float2*>(phase);
        auto* y = reinterpret_cast<float4*>(out);
        if (fix) mixer_reduced<<<blocks_for(pairs, 256), 256>>>(x, p, gain, y, pairs, per_channel);
        else mixer_library<<<blocks_for(pairs, 256), 256>>>(x, p, gain, y, pairs, per_channel);
    };
    launch_once(launch);
    double error = device_error(out, size_t(n) * 2, Reference{reinterpret_cast<float2*>(in), phase, gain, per_channel});
    return report("faults/n-mixer", median_us(launch, reps), 0, 20.0 * n, error, 1e-4);
}
