// Evaluates a long straight chain of affine maps, unrolled completely: every step has its own constants in the code.
#include "g_util.cuh"
using namespace held;

constexpr int kSteps = 5000, kChains = 8;

// Constants of step i, chain c: in [0.5, 1) and [-0.5, 0.5).
__host__ __device__ constexpr unsigned scramble(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}
__host__ __device__ constexpr float offset_of(int i, int c) { return float(scramble(unsigned(i * kChains + c)) >> 8) * 0x1p-24f - 0.5f; }

template <int FIRST, int COUNT>
struct Chain {
    static __device__ __forceinline__ void run(float (&x)[kChains], float f) {
        Chain<FIRST, COUNT / 2>::run(x, f);
        Chain<FIRST + COUNT / 2, COUNT - COUNT / 2>::run(x, f);
    }
};
template <int I>
struct Chain<I, 1> {
    static __device__ __forceinline__ void run(float (&x)[kChains], float f) {
        constexpr float o[kChains] = {offset_of(I, 0), offset_of(I, 1), offset_of(I, 2), offset_of(I, 3),
                                      offset_of(I, 4), offset_of(I, 5), offset_of(I, 6), offset_of(I, 7)};
        x[0] = fmaf(x[0], f, o[0]);
        x[1] = fmaf(x[1], f, o[1]);
        x[2] = fmaf(x[2], f, o[2]);
        x[3] = fmaf(x[3], f, o[3]);
        x[4] = fmaf(x[4], f, o[4]);
        x[5] = fmaf(x[5], f, o[5]);
        x[6] = fmaf(x[6], f, o[6]);
        x[7] = fmaf(x[7], f, o[7]);
    }
};

__global__ void __launch_bounds__(128) long_chain(const float* in, const float* factor, float* out, int n, int turns) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i >= n) return;
    float x[kChains], f = *factor;
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = in[i] + float(c);
#pragma unroll 1
    for (int t = 0; t < turns; ++t) Chain<0, kSteps>::run(x, f);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kChains; ++c) sum += x[c];
    out[i] = sum;
}

__global__ void reference_chain(const float* in, const float* factor, double* out, int n, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0, f = *factor;
    for (int c = 0; c < kChains; ++c) {
        double x = double(in[i] + float(c));
        for (int t = 0; t < turns; ++t)
            for (int s = 0; s < kSteps; ++s) x = x * f + double(offset_of(s, c));
        sum += x;
    }
    out[i] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = int(args.get("n", 33792)), turns = int(args.get("turns", 4));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= 16777216 && turns > 0 && turns <= 64, "arguments out of range");
    float *in = device_alloc<float>(n), *factor = device_alloc<float>(1), *out = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(in, n, s, -1.0f, 1.0f);
    fill_uniform(factor, 1, s + 1, 0.9990f, 0.9999f);
    reference_chain<<<(n + 127) / 128, 128>>>(in, factor, ref, n, turns);
    poison(out, size_t(n) * 4);
    finish();
    auto launch = [&] { long_chain<<<(n + 127) / 128, 128>>>(in, factor, out, n, turns); };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-long", median_us(launch, reps), 2.0 * kSteps * kChains * double(turns) * n, 0, error, 1e-2);
}
