// Parallel sampling: many sequences continue the same prompt, so that all of them attend to one KV cache (bf16, [head][token][128]). A block
// works on 512 tokens of one head for one sequence; the parts are merged at the end.
// `fault`: the pieces of the prompt are the fastest index of the grid, then the heads, then the sequences; `fix`: the sequences are.
#include "h_harness.cuh"
#include "q_parts.cuh"

constexpr int kDim = 128, kSpan = 512, kThreads = 128, kGroups = kThreads / 16, kBatch = 8;

struct Shape {
    int spans, heads, sequences;
    __host__ __device__ int tokens() const { return spans * kSpan; }
};

struct Place {
    int span, head, sequence;
};

template <bool SEQUENCE_FIRST>
__device__ __forceinline__ Place place(const Shape& s, unsigned block) {
    if (SEQUENCE_FIRST) return {int(block / s.sequences % s.spans), int(block / s.sequences / s.spans), int(block % s.sequences)};
    return {int(block % s.spans), int(block / s.spans % s.heads), int(block / s.spans / s.heads)};
}

// 16 lanes hold a row of 128; a group takes every eighth token of the span.
template <bool SEQUENCE_FIRST>
__global__ void __launch_bounds__(kThreads) prefix_attend(const uint4* __restrict__ k, const uint4* __restrict__ v, const float* __restrict__ q,
                                                          float* __restrict__ parts, Shape shape) {
    __shared__ float merged[kGroups][kDim + 2];
    Place at = place<SEQUENCE_FIRST>(shape, blockIdx.x);
    int group = threadIdx.x / 16, part = threadIdx.x % 16;
    size_t row = size_t(at.sequence) * shape.heads + at.head, first = size_t(at.head) * shape.tokens() + size_t(at.span) * kSpan;
    const uint4 *keys = k + (first + group) * 16 + part, *values = v + (first + group) * 16 + part;
    const float scale = rsqrtf(float(kDim)) * 1.44269504f;
    float mine[8], acc[8] = {}, top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) mine[i] = q[row * kDim + part * 8 + i] * scale;
    for (int t = 0; t < kSpan / kGroups; t += kBatch) {
        uint4 key[kBatch], value[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) key[j] = keys[size_t(t + j) * kGroups * 16];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) value[j] = values[size_t(t + j) * kGroups * 16];
        float score[kBatch], best = top;
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            float x[8], dot = 0;
            unpack(key[j], x);
#pragma unroll
            for (int i = 0; i < 8; ++i) dot += x[i] * mine[i];
#pragma unroll
            for (int s = 8; s; s >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, s);
            score[j] = dot;
            best = fmaxf(best, dot);
        }
        float shrink = exp2f(top - best);
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[i] *= shrink;
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            float x[8], weight = exp2f(score[j] - best);
            unpack(value[j], x);
            sum += weight;
#pragma unroll
            for (int i = 0; i < 8; ++i) acc[i] += weight * x[i];
        }
        top = best;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) merged[group][part * 8 + i] = acc[i];
    if (part == 0) {
        merged[group][kDim] = top;
        merged[group][kDim + 1] = sum;
    }
    __syncthreads();
    float total = 0, mean = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) top = fmaxf(top, merged[g][kDim]);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        float weight = exp2f(merged[g][kDim] - top);
        mean += weight * merged[g][threadIdx.x];
        total += weight * merged[g][kDim + 1];
    }
    float* out = parts + (row * shape.spans + at.span) * (kDim + 2);
    out[threadIdx.x] = mean;
    if (threadIdx.x == 0) {
        out[kDim] = top;
        out[kDim + 1] = total;
    }
}

// One block a row: the weights first, then the sums over them.
__global__ void prefix_reference(const __nv_bfloat16* k, const __nv_bfloat16* v, const float* q, double* weights, double* out, Shape shape) {
    int tokens = shape.tokens();
    size_t row = blockIdx.x, first = size_t(row % shape.heads) * tokens;
    double* mine = weights + row * tokens;
    for (int t = threadIdx.x / 32; t < tokens; t += blockDim.x / 32) {
        float dot = 0;  // 128 products
        for (int d = threadIdx.x % 32; d < kDim; d += 32) dot += q[row * kDim + d] * __bfloat162float(k[(first + t) * kDim + d]);
        for (int s = 16; s; s >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, s);
        if (threadIdx.x % 32 == 0) mine[t] = exp(double(dot) / sqrt(double(kDim)));
    }
    __syncthreads();
    if (threadIdx.x >= kDim) return;
    double sum = 0, acc = 0;
    for (int t = 0; t < tokens; ++t) {
        sum += mine[t];
        acc += mine[t] * double(__bfloat162float(v[(first + t) * kDim + threadIdx.x]));
    }
    out[row * kDim + threadIdx.x] = acc / sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 65536, 1 << 20);
    Shape shape{tokens / kSpan, positive(args, "heads", 8, 256), positive(args, "sequences", 48, 1024)};
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(tokens % kSpan == 0, "--tokens must be a multiple of 512");
    size_t cache = size_t(shape.heads) * tokens * kDim, rows = size_t(shape.sequences) * shape.heads;
    require(cache <= (size_t(1) << 30) && rows * tokens <= (size_t(1) << 28), "too large");
    auto *k = device_alloc<__nv_bfloat16>(cache), *v = device_alloc<__nv_bfloat16>(cache);
    float *q = device_alloc<float>(rows * kDim), *out = device_alloc<float>(rows * kDim);
    float* parts = device_alloc<float>(rows * shape.spans * (kDim + 2));
    double *weights = device_alloc<double>(rows * tokens), *ref = device_alloc<double>(rows * kDim);
    fill_uniform(k, cache, key, -2.0f, 2.0f);
    fill_uniform(v, cache, key + 1, -0.5f, 1.0f);
    fill_uniform(q, rows * kDim, key + 2, -2.0f, 2.0f);
    poison(out, rows * kDim * sizeof(float));
    auto kernel = fix ? prefix_attend<true> : prefix_attend<false>;
    auto launch = [&] {
        kernel<<<unsigned(rows) * shape.spans, kThreads>>>(reinterpret_cast<const uint4*>(k), reinterpret_cast<const uint4*>(v), q, parts, shape);
        combine_parts<kDim><<<unsigned(rows), kDim>>>(parts, out, shape.spans);
    };
    launch_once(launch);
    prefix_reference<<<unsigned(rows), 256>>>(k, v, q, weights, ref, shape);
    CHECK_CUDA(cudaGetLastError());
    double error = relative_error(to_host(out, rows * kDim), to_host(ref, rows * kDim));
    return report("faults/q-prefix", median_us(launch, reps), 0, 4.0 * double(cache), error, 1e-4);
}
