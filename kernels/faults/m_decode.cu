// Attention of one new token over its cache, 128 wide, bf16: a block takes one (sequence, head) and one of `splits` spans of
// the cache; half a warp a key. A second small kernel joins the spans.
#include "h_harness.cuh"

constexpr int kDim = 128;

__device__ __forceinline__ void widen(uint4 v, float (&f)[8]) {
    const unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

// parts: [head][split][kDim + 2]: the weighted sum, the maximum (in powers of two), the sum of weights.
__global__ void __launch_bounds__(256) decode_attend(const uint4* __restrict__ keys, const uint4* __restrict__ values,
                                                     const float* __restrict__ query, float* __restrict__ parts, int length) {
    __shared__ float most[16], total[16], sums[16][kDim];
    int group = threadIdx.x / 16, lane = threadIdx.x % 16, span = length / gridDim.x;
    float q[8], acc[8] = {}, m = -INFINITY, l = 0;
    for (int i = 0; i < 8; ++i) q[i] = query[blockIdx.y * kDim + lane * 8 + i] * (1.44269504f * 0.08838834765f);
    size_t base = (size_t(blockIdx.y) * length + size_t(blockIdx.x) * span) * 16 + lane;
    for (int j = group; j < span; j += 64) {
        uint4 k[4], v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            k[u] = __ldcs(keys + base + size_t(j + u * 16) * 16);
            v[u] = __ldcs(values + base + size_t(j + u * 16) * 16);
        }
        float s[4], now = m;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            float f[8];
            widen(k[u], f);
            s[u] = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) s[u] += q[i] * f[i];
#pragma unroll
            for (int x = 8; x; x >>= 1) s[u] += __shfl_xor_sync(0xffffffffu, s[u], x);
            now = fmaxf(now, s[u]);
        }
        float scale = exp2f(m - now);
        m = now;
        l *= scale;
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] *= scale;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            float f[8], w = exp2f(s[u] - m);
            widen(v[u], f);
            l += w;
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[i] += w * f[i];
        }
    }
    if (lane == 0) {
        most[group] = m;
        total[group] = l;
    }
    for (int i = 0; i < 8; ++i) sums[group][lane * 8 + i] = acc[i];
    __syncthreads();
    if (threadIdx.x >= kDim) return;
    float all = -INFINITY, sum = 0, weight = 0;
    for (int g = 0; g < 16; ++g) all = fmaxf(all, most[g]);
    for (int g = 0; g < 16; ++g) {
        float scale = exp2f(most[g] - all);
        sum += scale * sums[g][threadIdx.x];
        weight += scale * total[g];
    }
    float* to = parts + (size_t(blockIdx.y) * gridDim.x + blockIdx.x) * (kDim + 2);
    to[threadIdx.x] = sum;
    if (threadIdx.x == 0) {
        to[kDim] = all;
        to[kDim + 1] = weight;
    }
}

__global__ void decode_join(const float* parts, float* out, int splits) {
    const float* from = parts + size_t(blockIdx.x) * splits * (kDim + 2);
    float all = -INFINITY, sum = 0, weight = 0;
    for (int s = 0; s < splits; ++s) all = fmaxf(all, from[s * (kDim + 2) + kDim]);
    for (int s = 0; s < splits; ++s) {
        float scale = exp2f(from[s * (kDim + 2) + kDim] - all);
        sum += scale * from[s * (kDim + 2) + threadIdx.x];
        weight += scale * from[s * (kDim + 2) + kDim + 1];
    }
    out[blockIdx.x * kDim + threadIdx.x] = sum / weight;
}

// One block of 1024 a head; scores go through global memory.
__global__ void reference_decode(const __nv_bfloat16* keys, const __nv_bfloat16* values, const float* query, float* scores, double* out,
                                 int length) {
    __shared__ double sums[8][kDim], weights[8];
    size_t base = size_t(blockIdx.x) * length;
    for (int j = threadIdx.x / 32; j < length; j += 32) {
        float s = 0;
        for (int d = threadIdx.x % 32; d < kDim; d += 32)
            s += query[blockIdx.x * kDim + d] * __bfloat162float(keys[(base + j) * kDim + d]);
        for (int x = 16; x; x >>= 1) s += __shfl_xor_sync(0xffffffffu, s, x);
        if (threadIdx.x % 32 == 0) scores[base + j] = s * 0.08838834765f;
    }
    __syncthreads();
    int d = threadIdx.x % kDim, part = threadIdx.x / kDim;
    double sum = 0, weight = 0;
    for (int j = part; j < length; j += 8) {
        double w = double(expf(scores[base + j]));
        sum += w * double(__bfloat162float(values[(base + j) * kDim + d]));
        weight += w;
    }
    sums[part][d] = sum;
    if (d == 0) weights[part] = weight;
    __syncthreads();
    if (part) return;
    for (int p = 1; p < 8; ++p) {
        sum += sums[p][d];
        weight += weights[p];
    }
    out[blockIdx.x * kDim + d] = sum / weight;
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int heads = positive(args, "heads", 32, 4096), length = positive(args, "length", 65536, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int splits = fix ? 32 : 1;
    require(length % (64 * splits) == 0, "--length must be a multiple of 2048");
    size_t n = size_t(heads) * length * kDim;
    auto *keys = device_alloc<__nv_bfloat16>(n), *values = device_alloc<__nv_bfloat16>(n);
    float *query = device_alloc<float>(heads * kDim), *out = device_alloc<float>(heads * kDim);
    float *parts = device_alloc<float>(size_t(heads) * splits * (kDim + 2)), *scores = device_alloc<float>(size_t(heads) * length);
    double* ref = device_alloc<double>(heads * kDim);
    fill_uniform(keys, n, key, -1.0f, 1.0f);
    fill_uniform(values, n, key + 1, 0.0f, 1.0f);
    fill_uniform(query, heads * kDim, key + 2, -3.0f, 3.0f);
    poison(parts, size_t(heads) * splits * (kDim + 2) * sizeof(float));
    poison(out, heads * kDim * sizeof(float));
    auto launch = [&] {
        decode_attend<<<dim3(splits, heads), 256>>>(reinterpret_cast<uint4*>(keys), reinterpret_cast<uint4*>(values), query, parts, length);
        decode_join<<<heads, kDim>>>(parts, out, splits);
    };
    launch_once(launch);
    launch_once([&] { reference_decode<<<heads, 1024>>>(keys, values, query, scores, ref, length); });
    double error = device_error(out, heads * kDim, Reference{ref});
    return report("faults/m-decode", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-3);
}
