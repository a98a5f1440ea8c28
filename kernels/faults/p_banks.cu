// Projection of a block of tokens to queries, keys and values: bf16, out = x w^T + bias, 128 x 128 a block, three cp.async stages.
// --variant fault: rows of 64 channels lie one after another in shared memory; fix: their 16-byte pieces are swizzled.
#include "p_product.cuh"

template <bool SWIZZLE>
__global__ void __launch_bounds__(256, 2) qkv_projection(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w,
                                                         const float* __restrict__ bias, __nv_bfloat16* __restrict__ out, int n, int k) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const uint32_t base = shared_address(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 64;
    const __nv_bfloat16 *from_x = x + size_t(blockIdx.y) * 128 * k, *from_w = w + size_t(blockIdx.x) * 128 * k;
    float c[2][8][4];
    p_clear(c);
    p_product<SWIZZLE>(c, base, from_x, from_w, k, row, column, lane);
    const float* add = bias + size_t(blockIdx.x) * 128 + column;
    p_store(out + (size_t(blockIdx.y) * 128 + row) * n + size_t(blockIdx.x) * 128 + column, n, c, lane,
            [&](float v, int at) { return v + add[at]; });
}

struct Reference {
    const __nv_bfloat16 *x, *w;
    const float* bias;
    int n, k;
    __device__ double operator()(size_t i) const {
        size_t row = i / n, column = i % n;
        double sum = bias[column];
        for (int j = 0; j < k; ++j) sum += double(__bfloat162float(x[row * k + j])) * double(__bfloat162float(w[column * k + j]));
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int m = positive(args, "m", 4224, 65536), n = positive(args, "n", 6144, 65536), k = positive(args, "k", 2048, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && k % 64 == 0 && k >= 128, "--m and --n must be multiples of 128, --k of 64 and at least 128");
    auto *x = device_alloc<__nv_bfloat16>(size_t(m) * k), *w = device_alloc<__nv_bfloat16>(size_t(n) * k);
    auto* out = device_alloc<__nv_bfloat16>(size_t(m) * n);
    float* bias = device_alloc<float>(n);
    fill_uniform(x, size_t(m) * k, key, -1.0f, 1.0f);
    fill_uniform(w, size_t(n) * k, key + 1, -1.0f, 1.0f);
    fill_uniform(bias, size_t(n), key + 2, -1.0f, 1.0f);
    poison(out, size_t(m) * n * 2);
    auto kernel = fix ? qkv_projection<true> : qkv_projection<false>;
    p_allow(reinterpret_cast<const void*>(kernel), kStages * kStage);
    auto launch = [&] { kernel<<<dim3(n / 128, m / 128), 256, kStages * kStage>>>(x, w, bias, out, n, k); };
    launch_once(launch);
    double error = sample_error(out, size_t(m) * n, Reference{x, w, bias, n, k}, 16384);
    return report("faults/p-banks", median_us(launch, reps), 2.0 * m * n * k, 0, error, 4e-3);
}
