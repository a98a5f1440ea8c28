// Attention of one query a head over a long cache (bf16, 128 wide). `fault`: one block a head; `fix`: 32 blocks a head share
// the cache and a small kernel merges them.
#include "g_util.cuh"
using namespace held;

constexpr int kWidth = 128;

__device__ __forceinline__ void unpack(uint4 v, float (&f)[8]) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

// parts: for every (head, split) 128 sums, then the maximum (base 2) and the sum of weights.
__global__ void __launch_bounds__(128, 8)
    token_attention(const float* query, const __nv_bfloat16* keys, const __nv_bfloat16* values, float* parts, int length) {
    __shared__ float sums[8][kWidth], tops[8], totals[8];
    int lane = threadIdx.x % 16, half = threadIdx.x / 16, head = blockIdx.x, span = length / gridDim.y;
    size_t base = (size_t(head) * length + size_t(blockIdx.y) * span + half) * kWidth + lane * 8;
    const uint4* kp = reinterpret_cast<const uint4*>(keys + base);
    const uint4* vp = reinterpret_cast<const uint4*>(values + base);
    float q[8], acc[8] = {}, top = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = query[head * kWidth + lane * 8 + i] * (1.4426950408889634f * 0.08838834764831845f);
    for (int j = 0; j < span; j += 32) {
        uint4 kr[4], vr[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) kr[u] = __ldcs(kp + size_t(j + 8 * u) * (kWidth / 8));
#pragma unroll
        for (int u = 0; u < 4; ++u) vr[u] = __ldcs(vp + size_t(j + 8 * u) * (kWidth / 8));
        float s[4], next = top;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            float f[8];
            unpack(kr[u], f);
            s[u] = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) s[u] = fmaf(q[i], f[i], s[u]);
#pragma unroll
            for (int o = 8; o; o >>= 1) s[u] += __shfl_xor_sync(0xffffffffu, s[u], o);
            next = fmaxf(next, s[u]);
        }
        float scale = ex2(top - next);
        top = next;
        total *= scale;
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] *= scale;
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            float f[8], p = ex2(s[u] - top);
            unpack(vr[u], f);
            total += p;
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[i] = fmaf(p, f[i], acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[half][lane * 8 + i] = acc[i];
    if (lane == 0) {
        tops[half] = top;
        totals[half] = total;
    }
    __syncthreads();
    float best = tops[0], out = 0, weight = 0;
    for (int h = 1; h < 8; ++h) best = fmaxf(best, tops[h]);
    for (int h = 0; h < 8; ++h) {
        float f = ex2(tops[h] - best);
        out += f * sums[h][threadIdx.x];
        weight += f * totals[h];
    }
    float* to = parts + (size_t(head) * gridDim.y + blockIdx.y) * (kWidth + 2);
    to[threadIdx.x] = out;
    if (threadIdx.x == 0) {
        to[kWidth] = best;
        to[kWidth + 1] = weight;
    }
}

__global__ void token_merge(const float* parts, float* out, int splits) {
    const float* from = parts + size_t(blockIdx.x) * splits * (kWidth + 2);
    float best = -INFINITY, sum = 0, weight = 0;
    for (int s = 0; s < splits; ++s) best = fmaxf(best, from[s * (kWidth + 2) + kWidth]);
    for (int s = 0; s < splits; ++s) {
        float f = ex2(from[s * (kWidth + 2) + kWidth] - best);
        sum += f * from[s * (kWidth + 2) + threadIdx.x];
        weight += f * from[s * (kWidth + 2) + kWidth + 1];
    }
    out[blockIdx.x * kWidth + threadIdx.x] = sum / weight;
}

__global__ void reference_scores(const float* query, const __nv_bfloat16* keys, double* weights, int length) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (j >= length) return;
    double s = 0;
    for (int i = 0; i < kWidth; ++i)
        s += double(query[head * kWidth + i]) * double(__bfloat162float(keys[(size_t(head) * length + j) * kWidth + i]));
    weights[size_t(head) * length + j] = exp(s * 0.08838834764831845);
}
__global__ void reference_output(const double* weights, const __nv_bfloat16* values, double* out, int length) {
    __shared__ double part[8][kWidth], norm[8];
    int d = threadIdx.x, y = threadIdx.y, head = blockIdx.x;
    double sum = 0, weight = 0;
    for (int j = y; j < length; j += 8) {
        double p = weights[size_t(head) * length + j];
        sum += p * double(__bfloat162float(values[(size_t(head) * length + j) * kWidth + d]));
        weight += p;
    }
    part[y][d] = sum;
    if (d == 0) norm[y] = weight;
    __syncthreads();
    if (y == 0) {
        for (int i = 1; i < 8; ++i) sum += part[i][d], weight += norm[i];
        out[head * kWidth + d] = sum / weight;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int heads = int(args.get("heads", 32)), length = int(args.get("length", 32768));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(heads > 0 && heads <= 4096 && length > 0 && length <= 1048576 && length % 1024 == 0, "length must be a multiple of 1024");
    int splits = fix ? 32 : 1;
    size_t cache = size_t(heads) * length * kWidth;
    require(cache <= (size_t(1) << 32), "the cache is too large");
    float* query = device_alloc<float>(heads * kWidth);
    auto* keys = device_alloc<__nv_bfloat16>(cache);
    auto* values = device_alloc<__nv_bfloat16>(cache);
    float* parts = device_alloc<float>(size_t(heads) * splits * (kWidth + 2));
    float* out = device_alloc<float>(heads * kWidth);
    double* weights = device_alloc<double>(size_t(heads) * length);
    double* ref = device_alloc<double>(heads * kWidth);
    fill_uniform(query, heads * kWidth, s, -4.0f, 4.0f);
    fill_uniform(keys, cache, s + 1, -1.0f, 1.0f);
    fill_uniform(values, cache, s + 2, -1.0f, 1.0f);
    reference_scores<<<dim3((length + 255) / 256, heads), 256>>>(query, keys, weights, length);
    reference_output<<<heads, dim3(kWidth, 8)>>>(weights, values, ref, length);
    poison(parts, size_t(heads) * splits * (kWidth + 2) * 4);
    poison(out, heads * kWidth * 4);
    finish();
    auto launch = [&] {
        token_attention<<<dim3(heads, splits), 128>>>(query, keys, values, parts, length);
        token_merge<<<heads, kWidth>>>(parts, out, splits);
    };
    launch();
    finish();
    double error = device_error(out, ref, heads * kWidth);
    return report("faults/g-token", median_us(launch, reps), 0, 4.0 * double(cache), error, 1e-3);
}
