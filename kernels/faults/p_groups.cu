// Pointwise convolution (1 x 1) with bias and SiLU on channels-last bf16 pixels, 128 pixels x 128 channels a block, four cp.async stages.
// --variant fault: the wait is for all copy groups, also the one just issued; fix: for the oldest.
#include "p_tile.cuh"

constexpr int kStages = 4, kPanel = 128 * 128, kStage = 2 * kPanel;

template <int PENDING>
__global__ void __launch_bounds__(256, 1) pointwise_silu(const __nv_bfloat16* __restrict__ pixels, const __nv_bfloat16* __restrict__ filters,
                                                         const float* __restrict__ bias, __nv_bfloat16* __restrict__ out, int n, int k) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const uint32_t base = shared_address(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 64;
    const __nv_bfloat16 *from_p = pixels + size_t(blockIdx.y) * 128 * k, *from_f = filters + size_t(blockIdx.x) * 128 * k;
    auto load = [&](int step) {
        uint32_t to = base + step % kStages * kStage;
        p_load_panel<128, 256, true>(to, from_p + step * 64, size_t(k) * 2);
        p_load_panel<128, 256, true>(to + kPanel, from_f + step * 64, size_t(k) * 2);
    };
    float c[2][8][4];
    p_clear(c);
    const int steps = k / 64;
    for (int s = 0; s < kStages - 1; ++s) {
        load(s);
        copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
        if (s + kStages - 1 < steps) load(s + kStages - 1);
        copy_commit();
        copy_wait<PENDING>();
        __syncthreads();
        uint32_t stage = base + s % kStages * kStage;
        p_multiply<P_Bf16, true>(c, stage + row * 128, stage + kPanel + column * 128, lane);
        __syncthreads();
    }
    const float* add = bias + size_t(blockIdx.x) * 128 + column;
    p_store(out + (size_t(blockIdx.y) * 128 + row) * n + size_t(blockIdx.x) * 128 + column, n, c, lane, [&](float v, int at) {
        float z = v + add[at];
        return __fdividef(z, 1.0f + __expf(-z));
    });
}

struct Reference {
    const __nv_bfloat16 *pixels, *filters;
    const float* bias;
    int n, k;
    __device__ double operator()(size_t i) const {
        size_t row = i / n, column = i % n;
        double sum = bias[column];
        for (int j = 0; j < k; ++j) sum += double(__bfloat162float(pixels[row * k + j])) * double(__bfloat162float(filters[column * k + j]));
        return sum / (1 + exp(-sum));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int pixels_count = positive(args, "pixels", 16896, 1 << 20), n = positive(args, "filters", 1024, 65536), k = positive(args, "channels", 2048, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(pixels_count % 128 == 0 && n % 128 == 0 && k % 64 == 0 && k >= 192, "--pixels and --filters must be multiples of 128, --channels of 64");
    require(pixels_count / 128 <= 65535, "--pixels is too large");
    size_t m = size_t(pixels_count);
    auto *pixels = device_alloc<__nv_bfloat16>(m * k), *filters = device_alloc<__nv_bfloat16>(size_t(n) * k);
    auto* out = device_alloc<__nv_bfloat16>(m * n);
    float* bias = device_alloc<float>(n);
    fill_uniform(pixels, m * k, key, -1.0f, 1.0f);
    fill_uniform(filters, size_t(n) * k, key + 1, -0.1f, 0.1f);
    fill_uniform(bias, size_t(n), key + 2, -1.0f, 1.0f);
    poison(out, m * n * 2);
    auto kernel = fix ? pointwise_silu<kStages - 1> : pointwise_silu<0>;
    p_allow(reinterpret_cast<const void*>(kernel), kStages * kStage);
    auto launch = [&] { kernel<<<dim3(n / 128, unsigned(m / 128)), 256, kStages * kStage>>>(pixels, filters, bias, out, n, k); };
    launch_once(launch);
    double error = sample_error(out, m * n, Reference{pixels, filters, bias, n, k}, 16384);
    return report("faults/p-groups", median_us(launch, reps), 2.0 * double(m) * n * k, 0, error, 4e-3);
}
