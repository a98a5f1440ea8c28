// Residual connection of a quantised network: y = clamp((a * ma + b * mb + 2^15) >> 16) on int8.
#include "h_harness.cuh"

__host__ __device__ inline int rescale(int a, int b, int ma, int mb) {
    int v = (a * ma + b * mb + 32768) >> 16;
    return v < -128 ? -128 : v > 127 ? 127 : v;
}

__global__ void __launch_bounds__(256) residual_add(const int8_t* __restrict__ a, const int8_t* __restrict__ b, int8_t* __restrict__ y,
                                                    size_t n, int ma, int mb) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = int8_t(rescale(a[i], b[i], ma, mb));
}

__device__ __forceinline__ unsigned add_word(unsigned a, unsigned b, int ma, int mb) {
    unsigned r = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        int x = int8_t(a >> (8 * e)), y = int8_t(b >> (8 * e));
        r |= (unsigned(rescale(x, y, ma, mb)) & 255u) << (8 * e);
    }
    return r;
}

__global__ void __launch_bounds__(256) residual_add_vector(const uint4* __restrict__ a, const uint4* __restrict__ b,
                                                           uint4* __restrict__ y, size_t n, int ma, int mb) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 u = a[i], v = b[i];
    y[i] = make_uint4(add_word(u.x, v.x, ma, mb), add_word(u.y, v.y, ma, mb), add_word(u.z, v.z, ma, mb), add_word(u.w, v.w, ma, mb));
}

struct Reference {
    const int8_t *a, *b;
    int ma, mb;
    __device__ double operator()(size_t i) const {
        double v = floor((double(a[i]) * ma + double(b[i]) * mb + 32768) / 65536);
        return fmin(fmax(v, -128.0), 127.0);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    size_t n = size_t(positive(args, "n", 268435456, 1ll << 30));
    int ma = positive(args, "ma", 50021, 1 << 20), mb = positive(args, "mb", 41213, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 16 == 0, "--n must be a multiple of 16");
    auto *a = device_alloc<int8_t>(n), *b = device_alloc<int8_t>(n), *y = device_alloc<int8_t>(n);
    fill_uniform(reinterpret_cast<uint8_t*>(a), n, key, 0.0f, 256.0f);
    fill_uniform(reinterpret_cast<uint8_t*>(b), n, key + 1, 0.0f, 256.0f);
    poison(y, n);
    auto launch = [&] {
        if (fix)
            residual_add_vector<<<blocks_for(n / 16, 256), 256>>>(reinterpret_cast<uint4*>(a), reinterpret_cast<uint4*>(b),
                                                                  reinterpret_cast<uint4*>(y), n / 16, ma, mb);
        else
            residual_add<<<blocks_for(n, 256), 256>>>(a, b, y, n, ma, mb);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{a, b, ma, mb});
    return report("faults/m-residual", median_us(launch, reps), 0, 3.0 * double(n), error, 0);
}
