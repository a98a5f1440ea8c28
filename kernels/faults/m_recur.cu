// A gated recurrence that no scan can break up: f = sigmoid(w * c + b[t]), c = f * c + (1 - f) * x[t]; a thread a channel.
#include "h_harness.cuh"

constexpr int kAhead = 16;

struct Inputs {
    float x[kAhead], b[kAhead];
};

__device__ __forceinline__ void fetch(Inputs& in, const float* __restrict__ x, const float* __restrict__ b, int channels, int t, int c) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
        in.x[i] = x[size_t(t + i) * channels + c];
        in.b[i] = b[size_t(t + i) * channels + c];
    }
}

__device__ __forceinline__ void advance(float& state, float weight, const Inputs& in, float* __restrict__ out, int channels, int t, int c) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
        float gate = __fdividef(1.0f, 1.0f + __expf(-(weight * state + in.b[i])));
        state = gate * (state - in.x[i]) + in.x[i];
        out[size_t(t + i) * channels + c] = state;
    }
}

// Two sets of inputs: one is on its way while the other is used. At the end the last set is read again, so that no branch
// delays the loads.
__global__ void __launch_bounds__(32) gated_recurrence(const float* __restrict__ x, const float* __restrict__ b, const float* __restrict__ w,
                                                       float* __restrict__ out, int channels, int steps) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float weight = w[c], state = 0;
    Inputs even, odd;
    fetch(even, x, b, channels, 0, c);
    for (int t = 0; t < steps; t += 2 * kAhead) {
        fetch(odd, x, b, channels, t + kAhead, c);
        advance(state, weight, even, out, channels, t, c);
        fetch(even, x, b, channels, min(t + 2 * kAhead, steps - kAhead), c);
        advance(state, weight, odd, out, channels, t + kAhead, c);
    }
}

__global__ void reference_recurrence(const float* x, const float* b, const float* w, double* out, int channels, int steps) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    double state = 0;
    for (int t = 0; t < steps; ++t) {
        size_t i = size_t(t) * channels + c;
        double gate = 1 / (1 + exp(-(double(w[c]) * state + double(b[i]))));
        state = gate * state + (1 - gate) * double(x[i]);
        out[i] = state;
    }
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int channels = positive(args, "channels", 8448, 1 << 20), steps = positive(args, "steps", 4096, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(channels % 32 == 0 && steps % (2 * kAhead) == 0, "--channels must be a multiple of 32, --steps of 32");
    size_t n = size_t(channels) * steps;
    float *x = device_alloc<float>(n), *b = device_alloc<float>(n), *w = device_alloc<float>(channels), *out = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(b, n, key + 1, -1.0f, 1.0f);
    fill_uniform(w, channels, key + 2, -1.0f, 1.0f);
    poison(out, n * sizeof(float));
    auto launch = [&] { gated_recurrence<<<channels / 32, 32>>>(x, b, w, out, channels, steps); };
    launch_once(launch);
    launch_once([&] { reference_recurrence<<<blocks_for(channels, 64), 64>>>(x, b, w, ref, channels, steps); });
    double error = device_error(out, n, Reference{ref});
    return report("faults/m-recur", median_us(launch, reps), 0, 12.0 * double(n), error, 1e-4);
}
