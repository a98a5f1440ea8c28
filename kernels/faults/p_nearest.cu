// Nearest entry of a codebook (vector quantisation) for features stored channel first, [128][token], codes [128][entry]; fp32.
// A block keeps 128 tokens and streams the codes, 128 at a time; --splits: blocks that share the codes of a tile of tokens.
#include "../mma.cuh"
#include "p_harness.cuh"

constexpr int kDim = 128, kTile = 128, kBytes = kDim * kTile * 4;

// Orders as the distances do; the entry breaks ties.
__device__ __forceinline__ unsigned long long ranked(float distance, int entry) {
    uint32_t bits = __float_as_uint(distance);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (unsigned long long)bits << 32 | uint32_t(entry);
}

__device__ __forceinline__ void fetch(uint32_t to, const float* from, size_t ld) {
#pragma unroll
    for (int i = 0; i < kDim * kTile / 4 / 256; ++i) {
        int at = i * 256 + int(threadIdx.x);
        copy_async_16(to + at * 16, from + at / 32 * ld + at % 32 * 4);
    }
}

__global__ void __launch_bounds__(256, 1) nearest_code(const float* __restrict__ x, const float* __restrict__ codes, const float* __restrict__ norms,
                                                       unsigned long long* __restrict__ best, int tokens, int entries) {
    extern __shared__ __align__(16) float raw[];
    const uint32_t base = shared_address(raw);
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, span = entries / int(gridDim.y), first = blockIdx.y * span, tiles = span / kTile;
    fetch(base, x + size_t(blockIdx.x) * kTile, tokens);
    fetch(base + kBytes, codes + first, entries);
    copy_commit();
    unsigned long long mine[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) mine[i] = ~0ull;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
        copy_wait<0>();
        __syncthreads();
        if (t + 1 < tiles) fetch(base + (1 + (t + 1) % 2) * kBytes, codes + first + (t + 1) * kTile, entries);
        copy_commit();
        const float *a = raw, *b = raw + (1 + t % 2) * kDim * kTile;
        float sum[8][8] = {};
#pragma unroll 8
        for (int k = 0; k < kDim; ++k) {
            float4 a0 = *reinterpret_cast<const float4*>(a + k * kTile + ty * 8), a1 = *reinterpret_cast<const float4*>(a + k * kTile + ty * 8 + 4);
            float4 b0 = *reinterpret_cast<const float4*>(b + k * kTile + tx * 4), b1 = *reinterpret_cast<const float4*>(b + k * kTile + 64 + tx * 4);
            float l[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w}, r[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(l[i], r[j], sum[i][j]);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            int entry = first + t * kTile + j / 4 * 64 + tx * 4 + j % 4;
            float norm = norms[entry];
#pragma unroll
            for (int i = 0; i < 8; ++i) mine[i] = min(mine[i], ranked(norm - 2.0f * sum[i][j], entry));
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int s = 8; s; s >>= 1) mine[i] = min(mine[i], __shfl_xor_sync(0xffffffffu, mine[i], s));
        if (tx == 0) atomicMin(&best[blockIdx.x * kTile + ty * 8 + i], mine[i]);
    }
}

__global__ void square_norms(const float* codes, float* norms, int entries) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= entries) return;
    double sum = 0;
    for (int k = 0; k < kDim; ++k) sum += double(codes[size_t(k) * entries + e]) * codes[size_t(k) * entries + e];
    norms[e] = float(sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int tiles = positive(args, "tiles", 140, 4096), entries = positive(args, "entries", 8192, 65536), splits = positive(args, "splits", 1, 64);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(entries % (kTile * splits) == 0, "--entries must be a multiple of 128 times --splits");
    int tokens = tiles * kTile;
    size_t n = size_t(tokens) * kDim, m = size_t(entries) * kDim;
    float *x = device_alloc<float>(n), *codes = device_alloc<float>(m), *norms = device_alloc<float>(entries);
    auto* best = device_alloc<unsigned long long>(tokens);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(codes, m, key + 1, -1.0f, 1.0f);
    square_norms<<<blocks_for(entries, 128), 128>>>(codes, norms, entries);
    poison(best, size_t(tokens) * 8);  // the largest rank
    CHECK_CUDA(cudaFuncSetAttribute(nearest_code, cudaFuncAttributeMaxDynamicSharedMemorySize, 3 * kBytes));
    auto launch = [&] { nearest_code<<<dim3(tiles, splits), 256, 3 * kBytes>>>(x, codes, norms, best, tokens, entries); };
    launch_once(launch);
    std::vector<float> hx = to_host(x, n), hc = to_host(codes, m);
    std::vector<unsigned long long> found = to_host(best, size_t(tokens));
    double worst = 0;  // how much farther than the nearest the entry found is, in units of the distance
    for (int s = 0; s < 96; ++s) {
        int token = int(diagnose_hash(key + 50 + s) % unsigned(tokens));
        std::vector<double> d(entries, 0.0);
        for (int k = 0; k < kDim; ++k)
            for (int e = 0; e < entries; ++e) {
                double r = double(hx[size_t(k) * tokens + token]) - hc[size_t(k) * entries + e];
                d[e] += r * r;
            }
        unsigned entry = unsigned(found[token]);
        require(entry < unsigned(entries), "no entry for token " + std::to_string(token));
        double least = *std::min_element(d.begin(), d.end());
        worst = std::max(worst, (d[entry] - least) / least);
    }
    return report("faults/p-nearest", median_us(launch, reps), 2.0 * double(n) * entries, 0, worst, 1e-5);
}
