// Pixel shuffle of an upscaling network, written as a permutation of five dimensions: [n][c][r][r][h][w] to [n][c][h][r][w][r].
#include "p_harness.cuh"

struct Sizes {  // as the framework hands them over
    long long c, r, h, w;
};

__global__ void __launch_bounds__(256) pixel_shuffle(const float* __restrict__ in, float* __restrict__ out, long long n, Sizes size) {
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < n; e += stride) {
        long long rest = e;
        long long j = rest % size.r;
        rest /= size.r;
        long long x = rest % size.w;
        rest /= size.w;
        long long i = rest % size.r;
        rest /= size.r;
        long long y = rest % size.h;
        rest /= size.h;  // image and channel stay together
        out[e] = in[(((rest * size.r + i) * size.r + j) * size.h + y) * size.w + x];
    }
}

// Division by a fixed number below 2^31 by a multiplication.
struct Divisor {
    unsigned d, factor, shift;
    explicit Divisor(unsigned by) : d(by), shift(0) {
        while ((1u << shift) < by) ++shift;
        factor = unsigned(((1ull << 32) * ((1ull << shift) - by)) / by + 1);
    }
    __device__ __forceinline__ unsigned split(unsigned n, unsigned& rest) const {
        unsigned q = (__umulhi(n, factor) + n) >> shift;
        rest = n - q * d;
        return q;
    }
};

__global__ void __launch_bounds__(256) pixel_shuffle_fast(const float* __restrict__ in, float* __restrict__ out, unsigned n, Divisor r,
                                                          Divisor w, Divisor h) {
    for (unsigned e = blockIdx.x * blockDim.x + threadIdx.x; e < n; e += gridDim.x * blockDim.x) {
        unsigned i, j, x, y, rest = h.split(r.split(w.split(r.split(e, j), x), i), y);
        out[e] = in[(((rest * r.d + i) * r.d + j) * h.d + y) * w.d + x];
    }
}

struct Reference {
    const float* in;
    int r, h, w;
    __device__ double operator()(size_t e) const {
        int column = int(e % (size_t(w) * r)), line = int(e / (size_t(w) * r) % (size_t(h) * r));
        size_t plane = e / (size_t(w) * r) / (size_t(h) * r);
        return in[((plane * r + line % r) * r + column % r) * h * w + size_t(line / r) * w + column / r];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int planes = positive(args, "planes", 768, 65536), r = positive(args, "scale", 2, 8), h = positive(args, "height", 180, 4096);
    int w = positive(args, "width", 320, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(planes) * r * r * h * w;
    require(n < (1u << 30), "the tensor must have fewer than 2^30 elements");
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * 4);
    auto launch = [&] {
        unsigned blocks = std::min(blocks_for(n, 1024), 65536u);
        if (fix) pixel_shuffle_fast<<<blocks, 256>>>(in, out, unsigned(n), Divisor(r), Divisor(w), Divisor(h));
        else pixel_shuffle<<<blocks, 256>>>(in, out, (long long)n, Sizes{planes, r, h, w});
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, r, h, w});
    return report("faults/p-shuffle", median_us(launch, reps), 0, 8.0 * n, error, 0);
}
