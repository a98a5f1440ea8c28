// Top-2 gate of a mixture of 64 experts: softmax over the experts, the two largest with their weights. logits are [expert][token].
#include "h_harness.cuh"

constexpr int kExperts = 64;

__global__ void __launch_bounds__(256) gate_top2(const float* __restrict__ logits, int2* __restrict__ expert,
                                                 float2* __restrict__ weight, int tokens) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= tokens) return;
    float p[kExperts], most = -INFINITY, sum = 0;
    for (int e = 0; e < kExperts; ++e) {
        p[e] = logits[size_t(e) * tokens + t];
        most = fmaxf(most, p[e]);
    }
    for (int e = 0; e < kExperts; ++e) {
        p[e] = __expf(p[e] - most);
        sum += p[e];
    }
    int chosen[2];
    float value[2];
    for (int k = 0; k < 2; ++k) {
        int best = 0;
        for (int e = 1; e < kExperts; ++e)
            if (p[e] > p[best]) best = e;
        chosen[k] = best;
        value[k] = p[best] / sum;
        p[best] = -1.0f;
    }
    expert[t] = make_int2(chosen[0], chosen[1]);
    weight[t] = make_float2(value[0], value[1]);
}

// One pass with the two best and the sum of exponentials (no maximum is needed first: logits are bounded) in registers.
__global__ void __launch_bounds__(256) gate_running(const float* __restrict__ logits, int2* __restrict__ expert,
                                                    float2* __restrict__ weight, int tokens) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= tokens) return;
    float first = -INFINITY, second = -INFINITY, sum = 0;
    int a = 0, b = 0;
#pragma unroll 16
    for (int e = 0; e < kExperts; ++e) {
        float v = logits[size_t(e) * tokens + t];
        sum += __expf(v);
        bool over = v > first, between = v > second;
        second = over ? first : between ? v : second;
        b = over ? a : between ? e : b;
        first = over ? v : first;
        a = over ? e : a;
    }
    float scale = __fdividef(1.0f, sum);
    expert[t] = make_int2(a, b);
    weight[t] = make_float2(__expf(first) * scale, __expf(second) * scale);
}

struct Reference {
    const float* logits;
    int tokens;
    bool index;
    __device__ double operator()(size_t i) const {
        size_t t = i / 2;
        double sum = 0;
        int a = 0, b = -1;
        for (int e = 0; e < kExperts; ++e) {
            float v = logits[size_t(e) * tokens + t];
            sum += exp(double(v));
            if (e && v > logits[size_t(a) * tokens + t]) {
                b = a;
                a = e;
            } else if (e && (b < 0 || v > logits[size_t(b) * tokens + t])) {
                b = e;
            }
        }
        int which = i % 2 ? b : a;
        return index ? double(which) : exp(double(logits[size_t(which) * tokens + t])) / sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 1048576, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float* logits = device_alloc<float>(size_t(tokens) * kExperts);
    auto* expert = device_alloc<int2>(tokens);
    auto* weight = device_alloc<float2>(tokens);
    fill_uniform(logits, size_t(tokens) * kExperts, key, -6.0f, 6.0f);
    poison(expert, size_t(tokens) * 8);
    poison(weight, size_t(tokens) * 8);
    auto launch = [&] {
        auto kernel = fix ? gate_running : gate_top2;
        kernel<<<blocks_for(tokens, 256), 256>>>(logits, expert, weight, tokens);
    };
    launch_once(launch);
    // Logits closer than an ulp of their exponential may swap: a few of a million tokens.
    double wrong = device_error(reinterpret_cast<int*>(expert), size_t(tokens) * 2, Reference{logits, tokens, true});
    double error = device_error(reinterpret_cast<float*>(weight), size_t(tokens) * 2, Reference{logits, tokens, false});
    require(wrong <= 1e-2, "wrong experts: relative difference " + std::to_string(wrong));
    return report("faults/m-gate", median_us(launch, reps), 0, 272.0 * tokens, error, 1e-4);
}
