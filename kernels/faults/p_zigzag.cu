// Log-sum-exp of causal attention scores (the statistics that a distributed attention exchanges): bf16, 128 channels, one block a
// multiprocessor for all heads, a tile of 128 queries each. --variant fault: block b has tile b of every head; fix: of every second head it
// has the tile as far from the end.
#include "p_tile.cuh"

constexpr int kDim = 128, kPanel = 128 * 128, kTile = 2 * kPanel, kStages = 3;

__device__ __forceinline__ float ex2(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

__global__ void __launch_bounds__(256, 1) causal_statistics(const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
                                                            float* __restrict__ lse, int heads, int tokens, float scale_log2, bool zigzag) {
    extern __shared__ __align__(1024) unsigned char raw[];
    __shared__ float2 halves[2][128];
    const uint32_t ring = shared_address(raw) + kTile, own = shared_address(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 64;
    auto load = [&](uint32_t to, const __nv_bfloat16* from) {
        p_load_panel<128, 256, true>(to, from, kDim * 2);
        p_load_panel<128, 256, true>(to + kPanel, from + 64, kDim * 2);
    };
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
        const int mine = zigzag && head % 2 ? int(gridDim.x) - 1 - int(blockIdx.x) : int(blockIdx.x), tiles = mine + 1;
        const __nv_bfloat16* keys = k + size_t(head) * tokens * kDim;
        load(own, q + (size_t(head) * tokens + mine * 128) * kDim);
        for (int s = 0; s < kStages - 1; ++s) {
            if (s < tokens / 128) load(ring + s * kTile, keys + size_t(s) * 128 * kDim);  // a tile too many is harmless
            copy_commit();
        }
        float most[2][2], sum[2][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            most[i / 2][i % 2] = -1e30f;
            sum[i / 2][i % 2] = 0;
        }
#pragma unroll 1
        for (int t = 0; t < tiles; ++t) {
            copy_wait<kStages - 2>();
            __syncthreads();
            if (t + kStages - 1 < tiles) load(ring + (t + kStages - 1) % kStages * kTile, keys + size_t(t + kStages - 1) * 128 * kDim);
            copy_commit();
            float c[2][8][4];
            p_clear(c);
            uint32_t tile = ring + t % kStages * kTile;
#pragma unroll
            for (int p = 0; p < 2; ++p) p_multiply<P_Bf16, true>(c, own + p * kPanel + row * 128, tile + p * kPanel + column * 128, lane);
            bool diagonal = t == mine;
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float top = most[m][h];
#pragma unroll
                    for (int n = 0; n < 8; ++n)
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            float& v = c[m][n][2 * h + e];
                            v *= scale_log2;
                            if (diagonal && column + n * 8 + lane % 4 * 2 + e > row + m * 16 + h * 8 + lane / 4) v = -1e30f;
                            top = fmaxf(top, v);
                        }
                    float total = sum[m][h] * ex2(most[m][h] - top);
#pragma unroll
                    for (int n = 0; n < 8; ++n) total += ex2(c[m][n][2 * h] - top) + ex2(c[m][n][2 * h + 1] - top);
                    most[m][h] = top;
                    sum[m][h] = total;
                }
        }
        copy_wait<0>();
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
#pragma unroll
                for (int s = 1; s < 4; s *= 2) {
                    float other = __shfl_xor_sync(0xffffffffu, most[m][h], s), more = __shfl_xor_sync(0xffffffffu, sum[m][h], s);
                    float top = fmaxf(most[m][h], other);
                    sum[m][h] = sum[m][h] * ex2(most[m][h] - top) + more * ex2(other - top);
                    most[m][h] = top;
                }
                if (lane % 4 == 0) halves[warp % 2][row + m * 16 + h * 8 + lane / 4] = make_float2(most[m][h], sum[m][h]);
            }
        __syncthreads();
        if (threadIdx.x < 128) {
            float2 a = halves[0][threadIdx.x], b = halves[1][threadIdx.x];
            float top = fmaxf(a.x, b.x);
            lse[size_t(head) * tokens + mine * 128 + threadIdx.x] = top + log2f(a.y * exp2f(a.x - top) + b.y * exp2f(b.x - top));
        }
        __syncthreads();
    }
}

struct Reference {
    const __nv_bfloat16 *q, *k;
    int tokens;
    float scale_log2;
    __device__ double operator()(size_t i) const {
        size_t head = i / tokens;
        int t = int(i % tokens);
        double sum = 0;  // scores are small: no maximum is needed
        for (int j = 0; j <= t; ++j) {
            float s = 0;
            for (int d = 0; d < kDim; ++d) s += __bfloat162float(q[i * kDim + d]) * __bfloat162float(k[(head * tokens + j) * kDim + d]);
            sum += exp2(double(s) * scale_log2);
        }
        return log2(sum);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int heads = positive(args, "heads", 4, 64), tiles = positive(args, "tiles", 132, 1024);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int tokens = tiles * 128;
    size_t n = size_t(heads) * tokens * kDim;
    auto *q = device_alloc<__nv_bfloat16>(n), *k = device_alloc<__nv_bfloat16>(n);
    float* lse = device_alloc<float>(size_t(heads) * tokens);
    fill_uniform(q, n, key, -1.0f, 1.0f);
    fill_uniform(k, n, key + 1, -1.0f, 1.0f);
    poison(lse, size_t(heads) * tokens * 4);
    const float scale_log2 = 1.44269504f / std::sqrt(float(kDim));
    const size_t shared = size_t(kTile) * (kStages + 1);
    p_allow(reinterpret_cast<const void*>(causal_statistics), shared);
    auto launch = [&] { causal_statistics<<<tiles, 256, shared>>>(q, k, lse, heads, tokens, scale_log2, fix); };
    launch_once(launch);
    double error = sample_error(lse, size_t(heads) * tokens, Reference{q, k, tokens, scale_log2}, 512);
    return report("faults/p-zigzag", median_us(launch, reps), 2.0 * heads * kDim * double(tokens) * tokens / 2, 0, error, 1e-4);
}
