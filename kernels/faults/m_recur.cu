// A gated recurrence that no scan can break up: f = sigmoid(w * c + b[t]), c = f * c + (1 - f) * x[t]; a thread a channel.
#include "h_harness.cuh"

constexpr int kAhead = 8;

__global__ void __launch_bounds__(32) gated_recurrence(const float* __restrict__ x, const float* __restrict__ b, const float* __restrict__ w,
                                                       float* __restrict__ out, int channels, int steps) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float weight = w[c], state = 0, nx[kAhead], nb[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
        nx[i] = x[size_t(i) * channels + c];
        nb[i] = b[size_t(i) * channels + c];
    }
    for (int t = 0; t < steps; t += kAhead) {
        float cx[kAhead], cb[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            cx[i] = nx[i];
            cb[i] = nb[i];
        }
        if (t + kAhead < steps) {
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                nx[i] = x[size_t(t + kAhead + i) * channels + c];
                nb[i] = b[size_t(t + kAhead + i) * channels + c];
            }
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            float gate = __fdividef(1.0f, 1.0f + __expf(-(weight * state + cb[i])));
            state = gate * (state - cx[i]) + cx[i];
            out[size_t(t + i) * channels + c] = state;
        }
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
    require(channels % 32 == 0 && steps % kAhead == 0, "--channels must be a multiple of 32, --steps of 8");
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
