// Decode attention of a small draft model (one head of 32 in bf16) over a paged KV cache: each block takes a span of one sequence;
// one warp asks the copy engine for the pages that the table names, four warps work on what has come. Parts are merged at the end.
// Both variants read the same bytes in the same order. `fault`: the table has a page a token; `fix`: a page of 64 tokens.
#include "../hopper.cuh"
#include "h_harness.cuh"
#include "q_parts.cuh"

using namespace hopper;

constexpr int kDim = 32, kRow = kDim * 2, kTile = 64, kStages = 6, kSpan = 2048, kConsumers = 128;

// What one group of four lanes knows: running maximum (base 2), sum of weights, and eight dimensions of the weighted sum.
struct Running {
    float top = -INFINITY, sum = 0, acc[8] = {};
};

struct Stage {
    __align__(128) unsigned char k[kTile * kRow], v[kTile * kRow];
};

template <int PAGE>
__device__ void fetch_span(Stage* ring, uint64_t* full, uint64_t* empty, const unsigned char* __restrict__ k,
                           const unsigned char* __restrict__ v, const int* __restrict__ table, int lane) {
    constexpr int kPages = kTile / PAGE, kEach = (kPages + 31) / 32;
    for (int t = 0; t < kSpan / kTile; ++t) {
        int s = t % kStages, page[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) page[i] = i * 32 + lane < kPages ? table[t * kPages + i * 32 + lane] : 0;
        barrier_wait(&empty[s], ((t / kStages) & 1) ^ 1);
        if (lane == 0) barrier_expect(&full[s], 2 * kTile * kRow);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            int slot = i * 32 + lane;
            if (slot >= kPages) continue;
            size_t from = size_t(page[i]) * (PAGE * kRow);
            bulk_load(address(ring[s].k) + slot * (PAGE * kRow), k + from, PAGE * kRow, &full[s]);
            bulk_load(address(ring[s].v) + slot * (PAGE * kRow), v + from, PAGE * kRow, &full[s]);
        }
    }
}

template <int PAGE>
__global__ void __launch_bounds__(kConsumers + 32) page_attend(const unsigned char* __restrict__ k, const unsigned char* __restrict__ v,
                                                              const int* __restrict__ table, const float* __restrict__ q,
                                                              float* __restrict__ parts, int spans) {
    extern __shared__ unsigned char raw[];
    __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
    __shared__ float merged[kConsumers / 4][kDim + 2];
    Stage* ring = reinterpret_cast<Stage*>((reinterpret_cast<uintptr_t>(raw) + 127) & ~uintptr_t(127));
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sequence = blockIdx.x / spans, span = blockIdx.x % spans;
    if (threadIdx.x == 0) {
        for (int s = 0; s < kStages; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], kConsumers / 32);
        }
        barrier_init_visible();
    }
    __syncthreads();
    if (warp == kConsumers / 32) {
        size_t first = (size_t(sequence) * spans + span) * kSpan;
        fetch_span<PAGE>(ring, full, empty, k, v, table + first / PAGE, lane);
    } else {
        int group = threadIdx.x / 4, part = threadIdx.x % 4;
        float mine[8];
        const float scale = rsqrtf(float(kDim)) * 1.44269504f;
#pragma unroll
        for (int i = 0; i < 8; ++i) mine[i] = q[size_t(sequence) * kDim + part * 8 + i] * scale;
        Running r;
        for (int t = 0; t < kSpan / kTile; ++t) {
            int s = t % kStages;
            barrier_wait(&full[s], (t / kStages) & 1);
            float score[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float key[8], dot = 0;
                unpack(*reinterpret_cast<const uint4*>(ring[s].k + (j * 32 + group) * kRow + part * 16), key);
#pragma unroll
                for (int i = 0; i < 8; ++i) dot += key[i] * mine[i];
                dot += __shfl_xor_sync(0xffffffffu, dot, 1);
                score[j] = dot + __shfl_xor_sync(0xffffffffu, dot, 2);
            }
            float top = fmaxf(r.top, fmaxf(score[0], score[1])), shrink = exp2f(r.top - top);
            r.sum *= shrink;
#pragma unroll
            for (int i = 0; i < 8; ++i) r.acc[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float value[8], weight = exp2f(score[j] - top);
                unpack(*reinterpret_cast<const uint4*>(ring[s].v + (j * 32 + group) * kRow + part * 16), value);
                r.sum += weight;
#pragma unroll
                for (int i = 0; i < 8; ++i) r.acc[i] += weight * value[i];
            }
            r.top = top;
            __syncwarp();
            if (lane == 0) barrier_arrive(&empty[s]);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) merged[group][part * 8 + i] = r.acc[i];
        if (part == 0) {
            merged[group][kDim] = r.top;
            merged[group][kDim + 1] = r.sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < kDim) {
        float top = -INFINITY, sum = 0, acc = 0;
        for (int g = 0; g < kConsumers / 4; ++g) top = fmaxf(top, merged[g][kDim]);
        for (int g = 0; g < kConsumers / 4; ++g) {
            float weight = exp2f(merged[g][kDim] - top);
            acc += weight * merged[g][threadIdx.x];
            sum += weight * merged[g][kDim + 1];
        }
        float* out = parts + size_t(blockIdx.x) * (kDim + 2);
        out[threadIdx.x] = acc;
        if (threadIdx.x == 0) {
            out[kDim] = top;
            out[kDim + 1] = sum;
        }
    }
}

struct Reference {
    const __nv_bfloat16 *k, *v;
    const int* pages;  // of 64 tokens
    const float* q;
    int length;
    __device__ double operator()(size_t i) const {
        size_t sequence = i / kDim, d = i % kDim;
        double sum = 0, acc = 0;
        for (int t = 0; t < length; ++t) {
            size_t token = size_t(pages[(sequence * length + t) / kTile]) * kTile + t % kTile;
            float dot = 0;  // 32 products
            for (int j = 0; j < kDim; ++j) dot += q[sequence * kDim + j] * __bfloat162float(k[token * kDim + j]);
            double weight = exp(double(dot) / sqrt(double(kDim)));
            sum += weight;
            acc += weight * double(__bfloat162float(v[token * kDim + d]));
        }
        return acc / sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int sequences = positive(args, "sequences", 264, 1 << 14), length = positive(args, "length", 32768, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(length % kSpan == 0, "--length must be a multiple of 2048");
    size_t tokens = size_t(sequences) * length;
    require(tokens <= (size_t(1) << 28), "too many tokens");
    int spans = length / kSpan;
    // Pages of 64 tokens in random order; the table of single tokens names the same places.
    std::vector<int> pages(tokens / kTile), slots(tokens);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = int(i);
    std::mt19937_64 random(key);
    std::shuffle(pages.begin(), pages.end(), random);
    for (size_t i = 0; i < tokens; ++i) slots[i] = pages[i / kTile] * kTile + int(i % kTile);
    int *device_pages = device_alloc<int>(pages.size()), *device_slots = device_alloc<int>(tokens);
    CHECK_CUDA(cudaMemcpy(device_pages, pages.data(), pages.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_slots, slots.data(), slots.size() * sizeof(int), cudaMemcpyHostToDevice));
    auto *k = device_alloc<__nv_bfloat16>(tokens * kDim), *v = device_alloc<__nv_bfloat16>(tokens * kDim);
    float *q = device_alloc<float>(size_t(sequences) * kDim), *out = device_alloc<float>(size_t(sequences) * kDim);
    float* parts = device_alloc<float>(size_t(sequences) * spans * (kDim + 2));
    fill_uniform(k, tokens * kDim, key, -2.0f, 2.0f);
    fill_uniform(v, tokens * kDim, key + 1, -0.5f, 1.0f);
    fill_uniform(q, size_t(sequences) * kDim, key + 2, -2.0f, 2.0f);
    poison(out, size_t(sequences) * kDim * sizeof(float));
    auto kernel = fix ? page_attend<kTile> : page_attend<1>;
    int shared = int(sizeof(Stage)) * kStages + 128;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    auto launch = [&] {
        kernel<<<sequences * spans, kConsumers + 32, shared>>>(reinterpret_cast<const unsigned char*>(k), reinterpret_cast<const unsigned char*>(v),
                                                               fix ? device_pages : device_slots, q, parts, spans);
        combine_parts<kDim><<<sequences, kDim>>>(parts, out, spans);
    };
    launch_once(launch);
    double error = device_error(out, size_t(sequences) * kDim, Reference{k, v, device_pages, q, length});
    return report("faults/q-page", median_us(launch, reps), 0, 4.0 * kDim * double(tokens), error, 1e-4);
}
