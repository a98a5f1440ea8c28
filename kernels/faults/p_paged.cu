// One query token a sequence against a paged key/value cache (pages of 16 tokens, bf16, 128 channels), split along the tokens:
// each block gives the normalised output and the log-sum-exp of its span.
#include "p_harness.cuh"

constexpr int kDim = 128, kPage = 16, kWarps = 4;

struct Cache {
    const __nv_bfloat16 *keys, *values;  // [page][head][16][128]
    const int* table;                    // [sequence][page of the sequence]
    int heads, pages;                    // pages a sequence
    __host__ __device__ size_t row(int page, int head, int token) const {
        return ((size_t(page) * heads + head) * kPage + token % kPage) * kDim;
    }
};

struct Running {
    float most = -INFINITY, sum = 0, acc[4] = {0, 0, 0, 0};
    __device__ void add(float score, uint2 v) {
        float next = fmaxf(most, score), keep = exp2f(most - next), p = exp2f(score - next);
        float2 a = p_unpack(v.x), b = p_unpack(v.y);
        sum = sum * keep + p;
        acc[0] = acc[0] * keep + p * a.x;
        acc[1] = acc[1] * keep + p * a.y;
        acc[2] = acc[2] * keep + p * b.x;
        acc[3] = acc[3] * keep + p * b.y;
        most = next;
    }
};

__device__ __forceinline__ float dot4(const float (&q)[4], uint2 k) {
    float2 a = p_unpack(k.x), b = p_unpack(k.y);
    float s = q[0] * a.x + q[1] * a.y + q[2] * b.x + q[3] * b.y;
#pragma unroll
    for (int step = 16; step; step >>= 1) s += __shfl_xor_sync(0xffffffffu, s, step);
    return s;
}

__device__ void finish(const Running& mine, float* out, float* lse) {
    __shared__ float most[kWarps], sum[kWarps], part[kWarps][kDim];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
        most[warp] = mine.most;
        sum[warp] = mine.sum;
    }
    for (int i = 0; i < 4; ++i) part[warp][lane * 4 + i] = mine.acc[i];
    __syncthreads();
    float top = -INFINITY, total = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, most[w]);
    for (int w = 0; w < kWarps; ++w) {
        float scale = exp2f(most[w] - top);
        total += scale * sum[w];
        value += scale * part[w][threadIdx.x];
    }
    out[threadIdx.x] = value / total;
    if (threadIdx.x == 0) *lse = top + log2f(total);
}

// Token after token: the page, the key, the score, then the value.
__global__ void __launch_bounds__(128) paged_decode(const float* __restrict__ query, Cache cache, float* __restrict__ out,
                                                    float* __restrict__ lse, int span) {
    int head = blockIdx.y, sequence = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t which = (size_t(sequence) * cache.heads + head);
    float q[4];
    for (int i = 0; i < 4; ++i) q[i] = query[which * kDim + lane * 4 + i];
    const int* table = cache.table + size_t(sequence) * cache.pages;
    int first = blockIdx.x * span;
    Running mine;
#pragma unroll 1
    for (int t = first + warp; t < first + span; t += kWarps) {
        size_t row = cache.row(table[t / kPage], head, t);
        float score = dot4(q, reinterpret_cast<const uint2*>(cache.keys + row)[lane]);
        mine.add(score, reinterpret_cast<const uint2*>(cache.values + row)[lane]);
    }
    which = which * gridDim.x + blockIdx.x;
    finish(mine, out + which * kDim, lse + which);
}

// Eight tokens of a page at a time: sixteen rows are asked for before the first is used.
__global__ void __launch_bounds__(128) paged_decode_batched(const float* __restrict__ query, Cache cache, float* __restrict__ out,
                                                            float* __restrict__ lse, int span) {
    int head = blockIdx.y, sequence = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t which = (size_t(sequence) * cache.heads + head);
    float q[4];
    for (int i = 0; i < 4; ++i) q[i] = query[which * kDim + lane * 4 + i];
    const int* table = cache.table + size_t(sequence) * cache.pages;
    int first = blockIdx.x * span;
    Running mine;
#pragma unroll 1
    for (int t = first + warp * 8; t < first + span; t += kWarps * 8) {
        size_t row = cache.row(table[t / kPage], head, t);
        uint2 k[8], v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) k[i] = reinterpret_cast<const uint2*>(cache.keys + row + i * kDim)[lane];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = reinterpret_cast<const uint2*>(cache.values + row + i * kDim)[lane];
#pragma unroll
        for (int i = 0; i < 8; ++i) mine.add(dot4(q, k[i]), v[i]);
    }
    which = which * gridDim.x + blockIdx.x;
    finish(mine, out + which * kDim, lse + which);
}

struct Reference {
    const float* query;
    Cache cache;
    int splits, span;
    __device__ double operator()(size_t i) const {
        int d = int(i % kDim), split = int(i / kDim % splits);
        size_t which = i / kDim / splits;
        int head = int(which % cache.heads), sequence = int(which / cache.heads);
        double sum = 0, value = 0;  // scores are small: no maximum is needed
        for (int t = split * span; t < (split + 1) * span; ++t) {
            size_t row = cache.row(cache.table[size_t(sequence) * cache.pages + t / kPage], head, t);
            float s = 0;
            for (int c = 0; c < kDim; ++c) s += query[which * kDim + c] * __bfloat162float(cache.keys[row + c]);
            double p = exp2(double(s));
            sum += p;
            value += p * double(__bfloat162float(cache.values[row + d]));
        }
        return value / sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int sequences = positive(args, "sequences", 33, 512), heads = positive(args, "heads", 8, 64);
    int length = positive(args, "length", 8192, 1 << 17), splits = positive(args, "splits", 2, 64);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(length % (splits * 32) == 0, "--length must be a multiple of 32 times --splits");
    int pages = length / kPage, all = pages * sequences;
    size_t elements = size_t(all) * heads * kPage * kDim, outputs = size_t(sequences) * heads * splits;
    auto *keys = device_alloc<__nv_bfloat16>(elements), *values = device_alloc<__nv_bfloat16>(elements);
    float* query = device_alloc<float>(size_t(sequences) * heads * kDim);
    float *out = device_alloc<float>(outputs * kDim), *lse = device_alloc<float>(outputs);
    fill_uniform(keys, elements, key, -1.0f, 1.0f);
    fill_uniform(values, elements, key + 1, 0.0f, 1.0f);
    fill_uniform(query, size_t(sequences) * heads * kDim, key + 2, -0.5f, 0.5f);
    Cache cache{keys, values, to_device(p_permutation(all, key + 3)), heads, pages};
    poison(out, outputs * kDim * 4);
    poison(lse, outputs * 4);
    auto launch = [&] {
        auto kernel = fix ? paged_decode_batched : paged_decode;
        kernel<<<dim3(splits, heads, sequences), 128>>>(query, cache, out, lse, length / splits);
    };
    launch_once(launch);
    double error = sample_error(out, outputs * kDim, Reference{query, cache, splits, length / splits}, 512);
    return report("faults/p-paged", median_us(launch, reps), 0, 4.0 * elements, error, 1e-4);
}
