// Permutes a tensor of six axes, two values a thread, from the linear index of the output; --variant sets how that is taken apart.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kAxes = 6, kOrder[kAxes] = {2, 0, 3, 1, 4, 5};  // output axis k is input axis kOrder[k]; the last stays

struct Layout {
    size_t extents[kAxes], strides[kAxes];  // of the output's axes; the strides step through the input
};

__global__ void __launch_bounds__(256) permute(const float2* __restrict__ in, float2* __restrict__ out, size_t n, Layout layout) {
    size_t o = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (o >= n) return;
    size_t rest = o, from = 0;
#pragma unroll
    for (int k = kAxes - 1; k >= 0; --k) {
        from += rest % layout.extents[k] * layout.strides[k];
        rest /= layout.extents[k];
    }
    out[o] = in[from];
}

// n / d for n < 2^31 by one multiplication, an addition and a shift.
struct Divider {
    unsigned d, multiplier, shift, stride;
    Divider() = default;
    Divider(unsigned divisor, unsigned step) : d(divisor), shift(0), stride(step) {
        while ((1ull << shift) < d) ++shift;
        multiplier = unsigned(((1ull << 32) * ((1ull << shift) - d)) / d + 1);
    }
    __device__ unsigned divide(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};
struct Dividers {
    Divider axes[kAxes];
};

__global__ void __launch_bounds__(256) permute_prepared(const float2* __restrict__ in, float2* __restrict__ out, unsigned n, Dividers by) {
    unsigned o = blockIdx.x * 256 + threadIdx.x;
    if (o >= n) return;
    unsigned rest = o, from = 0;
#pragma unroll
    for (int k = kAxes - 1; k > 0; --k) {
        unsigned quotient = by.axes[k].divide(rest);
        from += (rest - quotient * by.axes[k].d) * by.axes[k].stride;
        rest = quotient;
    }
    out[o] = in[from + rest * by.axes[0].stride];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    const char* names[kAxes] = {"a", "b", "c", "d", "e", "f"};
    int defaults[kAxes] = {12, 14, 20, 25, 20, 40};
    size_t extents[kAxes], strides[kAxes], n = 1;
    for (int k = 0; k < kAxes; ++k) extents[k] = size_t(positive(args, names[k], defaults[k], 4096));
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    for (int k = kAxes - 1; k >= 0; --k) {
        strides[k] = n;
        n *= extents[k];
        require(n < (1ull << 31), "the tensor must have fewer than 2^31 pairs of values");
    }
    Layout layout;
    Dividers by;
    for (int k = 0; k < kAxes; ++k) {
        layout.extents[k] = extents[kOrder[k]];
        layout.strides[k] = strides[kOrder[k]];
        by.axes[k] = Divider(unsigned(layout.extents[k]), unsigned(layout.strides[k]));
    }
    float *in = device_alloc<float>(2 * n), *out = device_alloc<float>(2 * n);
    fill_uniform(in, 2 * n, key, 0.5f, 1.0f);
    poison(out, 2 * n * sizeof(float));
    auto *from = reinterpret_cast<const float2*>(in);
    auto *to = reinterpret_cast<float2*>(out);
    auto launch = [&] {
        if (fix) permute_prepared<<<blocks_for(n, 256), 256>>>(from, to, unsigned(n), by);
        else permute<<<blocks_for(n, 256), 256>>>(from, to, n, layout);
    };
    launch_once(launch);
    std::vector<float> source = to_host(in, 2 * n);
    auto wanted = [&](size_t at) {
        size_t place[kAxes], rest = at / 2, index = 0;  // coordinates on the input's axes
        for (int k = kAxes - 1; k >= 0; --k) {
            place[kOrder[k]] = rest % extents[kOrder[k]];
            rest /= extents[kOrder[k]];
        }
        for (int k = 0; k < kAxes; ++k) index = index * extents[k] + place[k];
        return source[2 * index + at % 2];
    };
    double error = sampled_error(to_host(out, 2 * n), wanted, 2000000);
    return report("faults/k-crate", median_us(launch, reps), 0, 16.0 * n, error, 0);
}
