// Decode attention with grouped queries: eight query heads share the keys and values of a head. A block takes one query head of one sequence
// (256 tokens, bf16, 128 channels). --order heads_last: the grid walks all sequences for the first query head, then for the next;
// heads_first: the query heads of a sequence follow each other.
#include "p_harness.cuh"

constexpr int kDim = 128, kTokens = 256, kGroup = 8, kWarps = 8;

__device__ __forceinline__ void eight(uint4 raw, float (&v)[8]) {
    uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float2 p = p_unpack(w[i]);
        v[2 * i] = p.x;
        v[2 * i + 1] = p.y;
    }
}

__global__ void __launch_bounds__(kWarps * 32) grouped_decode(const float* __restrict__ query, const uint4* __restrict__ keys,
                                                              const uint4* __restrict__ values, float* __restrict__ out, int kv_heads,
                                                              bool heads_first) {
    __shared__ float p[kTokens], part[kWarps * 2][kDim], norm[kWarps];
    const int head = heads_first ? blockIdx.x : blockIdx.y, sequence = heads_first ? blockIdx.y : blockIdx.x, heads = kv_heads * kGroup;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = lane / 16, at = lane % 16;
    const size_t cache = (size_t(sequence) * kv_heads + head / kGroup) * kTokens * 16, which = size_t(sequence) * heads + head;
    float q[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = query[which * kDim + at * 8 + i];
#pragma unroll 8
    for (int t = warp * 2 + half; t < kTokens; t += kWarps * 2) {
        float k[8], s = 0;
        eight(keys[cache + t * 16 + at], k);
#pragma unroll
        for (int i = 0; i < 8; ++i) s = fmaf(q[i], k[i], s);
#pragma unroll
        for (int step = 8; step; step >>= 1) s += __shfl_xor_sync(0xffffffffu, s, step);
        if (at == 0) p[t] = s;
    }
    __syncthreads();
    float e = exp2f(p[threadIdx.x]), sum = e;  // scores are small: no maximum is needed
#pragma unroll
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    p[threadIdx.x] = e;
    if (lane == 0) norm[warp] = sum;
    __syncthreads();
    float acc[8] = {};
#pragma unroll 8
    for (int t = warp * 2 + half; t < kTokens; t += kWarps * 2) {
        float v[8], w = p[t];
        eight(values[cache + t * 16 + at], v);
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] = fmaf(w, v[i], acc[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) part[warp * 2 + half][at * 8 + i] = acc[i];
    __syncthreads();
    if (threadIdx.x < kDim) {
        float total = 0, value = 0;
        for (int w = 0; w < kWarps; ++w) total += norm[w];
        for (int w = 0; w < kWarps * 2; ++w) value += part[w][threadIdx.x];
        out[which * kDim + threadIdx.x] = value / total;
    }
}

struct Reference {
    const float* query;
    const __nv_bfloat16 *keys, *values;
    int kv_heads;
    __device__ double operator()(size_t i) const {
        size_t which = i / kDim, head = which % (kv_heads * kGroup), sequence = which / (kv_heads * kGroup);
        size_t cache = (sequence * kv_heads + head / kGroup) * kTokens * kDim;
        double sum = 0, value = 0;
        for (int t = 0; t < kTokens; ++t) {
            double s = 0;
            for (int d = 0; d < kDim; ++d) s += double(query[which * kDim + d]) * double(__bfloat162float(keys[cache + t * kDim + d]));
            double e = exp2(s);
            sum += e;
            value += e * double(__bfloat162float(values[cache + t * kDim + i % kDim]));
        }
        return value / sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string order = args.get_str("order", "heads_last");
    require(order == "heads_last" || order == "heads_first", "--order must be heads_last or heads_first, got " + order);
    int sequences = positive(args, "sequences", 4096, 16384), kv_heads = positive(args, "kv_heads", 2, 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(sequences) * kv_heads * kTokens * kDim, outputs = size_t(sequences) * kv_heads * kGroup * kDim;
    auto *keys = device_alloc<__nv_bfloat16>(n), *values = device_alloc<__nv_bfloat16>(n);
    float *query = device_alloc<float>(outputs), *out = device_alloc<float>(outputs);
    fill_uniform(keys, n, key, -1.0f, 1.0f);
    fill_uniform(values, n, key + 1, 0.0f, 1.0f);
    fill_uniform(query, outputs, key + 2, -0.5f, 0.5f);
    poison(out, outputs * 4);
    bool first = order == "heads_first";
    unsigned heads = unsigned(kv_heads * kGroup);
    auto launch = [&] {
        grouped_decode<<<first ? dim3(heads, sequences) : dim3(sequences, heads), kWarps * 32>>>(
            query, reinterpret_cast<uint4*>(keys), reinterpret_cast<uint4*>(values), out, kv_heads, first);
    };
    launch_once(launch);
    double error = sample_error(out, outputs, Reference{query, keys, values, kv_heads}, 8192);
    return report("faults/p-gqa", median_us(launch, reps), 0, 4.0 * n, error, 1e-4);
}
