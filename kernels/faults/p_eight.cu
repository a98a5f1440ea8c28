// Linear layer with e4m3 activations and weights, a scale a row of each, bf16 out: 128 x 128 a block, three cp.async stages of 128 bytes of K.
// --variant fault: mma.sync on e4m3, which the compiler turns into conversions and 16-bit products on this GPU; fix: wgmma on the same tiles.
#include <cuda_fp8.h>

#include "../hopper.cuh"
#include "p_tile.cuh"

constexpr int kStages = 3, kPanel = 128 * 128, kStage = 2 * kPanel;

struct E4m3 {
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct Layer {
    const uint8_t *x, *w;
    const float *x_scale, *w_scale;
    __nv_bfloat16* out;
    int n, k;
    __device__ __forceinline__ void load(uint32_t base, int step) const {
        uint32_t to = base + step % kStages * kStage;
        p_load_panel<128, 256, true>(to, x + size_t(blockIdx.y) * 128 * k + step * 128, k);
        p_load_panel<128, 256, true>(to + kPanel, w + size_t(blockIdx.x) * 128 * k + step * 128, k);
    }
};

__global__ void __launch_bounds__(256, 2) linear_e4m3(Layer layer) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const uint32_t base = (shared_address(raw) + 1023u) & ~1023u;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 64, steps = layer.k / 128;
    float c[2][8][4];
    p_clear(c);
    for (int s = 0; s < kStages - 1; ++s) {
        layer.load(base, s);
        copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
        copy_wait<kStages - 2>();
        __syncthreads();
        if (s + kStages - 1 < steps) layer.load(base, s + kStages - 1);
        copy_commit();
        uint32_t stage = base + s % kStages * kStage;
        p_multiply<E4m3, true>(c, stage + row * 128, stage + kPanel + column * 128, lane);
    }
    size_t first = size_t(blockIdx.y) * 128 + row, right = size_t(blockIdx.x) * 128 + column;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 32; ++i) c[m][i / 4][i % 4] *= layer.x_scale[first + m * 16 + i / 2 % 2 * 8 + lane / 4];
    p_store(layer.out + first * layer.n + right, layer.n, c, lane, [&](float v, int at) { return v * layer.w_scale[right + at]; });
}

__global__ void __launch_bounds__(256, 2) linear_e4m3_wgmma(Layer layer) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const uint32_t base = (shared_address(raw) + 1023u) & ~1023u;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 4 * 64, steps = layer.k / 128;
    float d[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) d[i] = 0;
    for (int s = 0; s < kStages - 1; ++s) {
        layer.load(base, s);
        copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
        copy_wait<kStages - 2>();
        hopper::shared_visible_to_async();
        hopper::wgmma_wait<0>();  // of the step before, whose stage is filled next
        hopper::pin(d);
        __syncthreads();
        uint32_t a = base + s % kStages * kStage + row * 128, b = base + s % kStages * kStage + kPanel;
        hopper::wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
            hopper::Wgmma<hopper::Type::e4m3, 128>::ss(d, hopper::descriptor_128(a + k * 32), hopper::descriptor_128(b + k * 32), 1);
        hopper::wgmma_commit();
        if (s + kStages - 1 < steps) layer.load(base, s + kStages - 1);
        copy_commit();
    }
    hopper::wgmma_wait<0>();
    hopper::pin(d);
    size_t first = size_t(blockIdx.y) * 128 + row + warp % 4 * 16 + lane / 4, right = size_t(blockIdx.x) * 128;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float scale = layer.x_scale[first + 8 * h];
        __nv_bfloat16* to = layer.out + (first + 8 * h) * layer.n + right;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float *w = layer.w_scale + right + n * 16 + lane % 4 * 2, *l = d + 8 * n + 2 * h, *r = l + 4;
            store_row_16(to + n * 16, pack_bf16(l[0] * scale * w[0], l[1] * scale * w[1]), pack_bf16(r[0] * scale * w[8], r[1] * scale * w[9]), lane);
        }
    }
}

// Random bytes without NaN (0x7f, 0xff) and with small exponents, so that 16-bit sums are never at stake.
__global__ void tame(uint8_t* data, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) data[i] &= 0xbf;
}

__device__ inline float decode(uint8_t v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3))); }

struct Reference {
    Layer layer;
    __device__ double operator()(size_t i) const {
        size_t row = i / layer.n, column = i % layer.n;
        double sum = 0;
        for (int j = 0; j < layer.k; ++j) sum += double(decode(layer.x[row * layer.k + j])) * double(decode(layer.w[column * layer.k + j]));
        return sum * layer.x_scale[row] * layer.w_scale[column];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int m = positive(args, "m", 4224, 65536), n = positive(args, "n", 8192, 65536), k = positive(args, "k", 4096, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && k % 128 == 0 && k >= 256, "--m, --n and --k must be multiples of 128, --k at least 256");
    uint8_t *x = device_alloc<uint8_t>(size_t(m) * k), *w = device_alloc<uint8_t>(size_t(n) * k);
    float *x_scale = device_alloc<float>(m), *w_scale = device_alloc<float>(n);
    auto* out = device_alloc<__nv_bfloat16>(size_t(m) * n);
    fill_uniform(x, size_t(m) * k, key, 0.0f, 1.0f);
    fill_uniform(w, size_t(n) * k, key + 1, 0.0f, 1.0f);
    tame<<<2048, 256>>>(x, size_t(m) * k);
    tame<<<2048, 256>>>(w, size_t(n) * k);
    fill_uniform(x_scale, size_t(m), key + 2, 0.5f, 1.5f);
    fill_uniform(w_scale, size_t(n), key + 3, 0.5f, 1.5f);
    poison(out, size_t(m) * n * 2);
    Layer layer{x, w, x_scale, w_scale, out, n, k};
    auto kernel = fix ? linear_e4m3_wgmma : linear_e4m3;
    const size_t shared = kStages * kStage + 1024;
    p_allow(reinterpret_cast<const void*>(kernel), shared);
    auto launch = [&] { kernel<<<dim3(n / 128, m / 128), 256, shared>>>(layer); };
    launch_once(launch);
    double error = sample_error(out, size_t(m) * n, Reference{layer}, 16384);
    return report("faults/p-eight", median_us(launch, reps), 2.0 * m * n * k, 0, error, 1e-2);
}
