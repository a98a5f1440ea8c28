// Seven-point stencil (periodic) on a 512^3 volume stored along a Morton curve. `fault` decodes and encodes coordinates,
// `fix` steps within the code.
#include "h_harness.cuh"

using Code = unsigned long long;
constexpr float kMiddle = 0.4f, kSide = 0.1f;

// Every third bit of 64 for 21 bits, and back.
__device__ inline Code spread(Code v) {
    v &= 0x1fffff;
    v = (v | v << 32) & 0x001f00000000ffffull;
    v = (v | v << 16) & 0x001f0000ff0000ffull;
    v = (v | v << 8) & 0x100f00f00f00f00full;
    v = (v | v << 4) & 0x10c30c30c30c30c3ull;
    return (v | v << 2) & 0x1249249249249249ull;
}
__device__ inline Code gather_bits(Code v) {
    v &= 0x1249249249249249ull;
    v = (v ^ v >> 2) & 0x10c30c30c30c30c3ull;
    v = (v ^ v >> 4) & 0x100f00f00f00f00full;
    v = (v ^ v >> 8) & 0x001f0000ff0000ffull;
    v = (v ^ v >> 16) & 0x001f00000000ffffull;
    return (v ^ v >> 32) & 0x1fffff;
}
__device__ inline Code encode(Code x, Code y, Code z) { return spread(x) | spread(y) << 1 | spread(z) << 2; }

__global__ void __launch_bounds__(256) stencil(const float* __restrict__ in, float* __restrict__ out, unsigned side) {
    Code i = Code(blockIdx.x) * 256 + threadIdx.x, wrap = side - 1;
    Code x = gather_bits(i), y = gather_bits(i >> 1), z = gather_bits(i >> 2);
    float sum = in[encode((x + 1) & wrap, y, z)] + in[encode((x - 1) & wrap, y, z)] + in[encode(x, (y + 1) & wrap, z)] +
                in[encode(x, (y - 1) & wrap, z)] + in[encode(x, y, (z + 1) & wrap)] + in[encode(x, y, (z - 1) & wrap)];
    out[i] = kMiddle * in[i] + kSide * sum;
}

// A step along one axis: carries run through the other axes' bits when those are set (up) or clear (down).
__global__ void __launch_bounds__(256) stencil_steps(const float* __restrict__ in, float* __restrict__ out, unsigned mx, unsigned my, unsigned mz) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    auto up = [&](unsigned m) { return in[(((i | ~m) + 1) & m) | (i & ~m)]; };
    auto down = [&](unsigned m) { return in[(((i & m) - 1) & m) | (i & ~m)]; };
    float sum = up(mx) + down(mx) + up(my) + down(my) + up(mz) + down(mz);
    out[i] = kMiddle * in[i] + kSide * sum;
}

__device__ size_t by_bits(int x, int y, int z) {
    size_t code = 0;
    for (int b = 0; b < 10; ++b) code |= size_t(x >> b & 1) << (3 * b) | size_t(y >> b & 1) << (3 * b + 1) | size_t(z >> b & 1) << (3 * b + 2);
    return code;
}

struct Wanted {
    const float* in;
    int side;
    __device__ double operator()(size_t code) const {
        int x = 0, y = 0, z = 0;
        for (int b = 0; b < 10; ++b) {
            x |= int(code >> (3 * b) & 1) << b;
            y |= int(code >> (3 * b + 1) & 1) << b;
            z |= int(code >> (3 * b + 2) & 1) << b;
        }
        int s = side - 1;
        double sum = double(in[by_bits((x + 1) & s, y, z)]) + in[by_bits((x - 1) & s, y, z)] + in[by_bits(x, (y + 1) & s, z)] +
                     in[by_bits(x, (y - 1) & s, z)] + in[by_bits(x, y, (z + 1) & s)] + in[by_bits(x, y, (z - 1) & s)];
        return double(kMiddle) * in[code] + double(kSide) * sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int side = positive(args, "side", 512, 1024);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(side >= 8 && (side & (side - 1)) == 0, "--side must be a power of two, at least 8");
    size_t n = size_t(side) * side * side;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * sizeof(float));
    unsigned mx = unsigned(0x09249249u & (n - 1)), my = mx << 1, mz = mx << 2;
    auto launch = [&] {
        if (fix) stencil_steps<<<unsigned(n / 256), 256>>>(in, out, mx, my, mz);
        else stencil<<<unsigned(n / 256), 256>>>(in, out, unsigned(side));
    };
    launch_once(launch);
    double error = device_error(out, n, Wanted{in, side});
    return report("faults/k-plait", median_us(launch, reps), 0, 8.0 * n, error, 1e-6);
}
