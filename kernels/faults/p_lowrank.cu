// Gradient of a low-rank adapter: dA (64 x width) = g^T x, summed over all tokens (bf16 in, float out), with mma.sync on transposed fragments.
// A block has 128 columns; --splits: blocks along the tokens, which add up by atomics.
#include "p_tile.cuh"

constexpr int kRank = 64, kStages = 4, kPanel = 64 * 128, kStage = 3 * kPanel;  // 64 tokens: g, and x in two panels of 64 columns

__global__ void __launch_bounds__(256, 2) adapter_gradient(const __nv_bfloat16* __restrict__ g, const __nv_bfloat16* __restrict__ x,
                                                           float* __restrict__ out, int width, int span) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const uint32_t base = shared_address(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 4 * 32, column = warp % 4 * 32;
    const __nv_bfloat16 *from_g = g + size_t(blockIdx.y) * span * kRank, *from_x = x + size_t(blockIdx.y) * span * width + size_t(blockIdx.x) * 128;
    auto load = [&](int step) {
        uint32_t to = base + step % kStages * kStage;
        p_load_panel<64, 256, true>(to, from_g + size_t(step) * 64 * kRank, kRank * 2);
        p_load_panel<64, 256, true>(to + kPanel, from_x + size_t(step) * 64 * width, size_t(width) * 2);
        p_load_panel<64, 256, true>(to + 2 * kPanel, from_x + size_t(step) * 64 * width + 64, size_t(width) * 2);
    };
    float c[2][4][4];
    p_clear(c);
    const int steps = span / 64;
    for (int s = 0; s < kStages - 1; ++s) {
        if (s < steps) load(s);
        copy_commit();
    }
    for (int s = 0; s < steps; ++s) {
        copy_wait<kStages - 2>();
        __syncthreads();
        if (s + kStages - 1 < steps) load(s + kStages - 1);
        copy_commit();
        const uint32_t left = base + s % kStages * kStage, right = left + kPanel + column / 64 * kPanel;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint32_t a[2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m)
                ldmatrix_transposed(a[m], left + p_place<true>(k * 16 + lane / 16 * 8 + lane % 8, (row + m * 16) / 8 + lane / 8 % 2));
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                uint32_t b[4];
                ldmatrix_transposed(b, right + p_place<true>(k * 16 + lane / 8 % 2 * 8 + lane % 8, (column % 64 + n * 16) / 8 + lane / 16));
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    mma(c[m][2 * n], a[m], b[0], b[1]);
                    mma(c[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int r = row + m * 16 + e / 2 * 8 + lane / 4, at = int(blockIdx.x) * 128 + column + n * 8 + lane % 4 * 2 + e % 2;
                atomicAdd(&out[size_t(r) * width + at], c[m][n][e]);
            }
}

struct Reference {
    const __nv_bfloat16 *g, *x;
    int width, tokens;
    __device__ double operator()(size_t i) const {
        size_t r = i / width, c = i % width;
        double sum = 0;
        for (int t = 0; t < tokens; ++t) sum += double(__bfloat162float(g[size_t(t) * kRank + r])) * double(__bfloat162float(x[size_t(t) * width + c]));
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int tokens = positive(args, "tokens", 65536, 1 << 20), width = positive(args, "width", 4096, 32768), splits = positive(args, "splits", 1, 64);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(tokens % (64 * splits) == 0 && width % 128 == 0, "--tokens must be a multiple of 64 times --splits, --width of 128");
    size_t n = size_t(tokens) * width, outputs = size_t(kRank) * width;
    auto *g = device_alloc<__nv_bfloat16>(size_t(tokens) * kRank), *x = device_alloc<__nv_bfloat16>(n);
    float* out = device_alloc<float>(outputs);
    fill_uniform(g, size_t(tokens) * kRank, key, -1.0f, 1.0f);
    fill_uniform(x, n, key + 1, -1.0f, 1.0f);
    CHECK_CUDA(cudaMemset(out, 0, outputs * 4));  // gradients accumulate
    p_allow(reinterpret_cast<const void*>(adapter_gradient), kStages * kStage);
    auto launch = [&] { adapter_gradient<<<dim3(width / 128, splits), 256, kStages * kStage>>>(g, x, out, width, tokens / splits); };
    launch_once(launch);
    double error = sample_error(out, outputs, Reference{g, x, width, tokens}, 1024);
    return report("faults/p-lowrank", median_us(launch, reps), 2.0 * kRank * n, 0, error, 1e-4);
}
