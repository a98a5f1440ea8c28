// Relative position bias of shifted-window attention: scores [window][head][49][49] get the bias of their pair's offset (13 x 13 offsets a
// head) and become probabilities' exponents in place of the scores. The bias table is an argument of the model and small.
#include "p_harness.cuh"

constexpr int kSide = 7, kTokens = kSide * kSide, kPairs = kTokens * kTokens, kOffsets = 13 * 13, kHeads = 32;
__constant__ float bias_table[kOffsets * kHeads];  // [offset][head], as trained

__device__ __forceinline__ int offset_of(int pair) {
    int a = pair / kTokens, b = pair % kTokens;
    return (a / kSide - b / kSide + kSide - 1) * 13 + (a % kSide - b % kSide + kSide - 1);
}

__global__ void __launch_bounds__(256) position_bias(const float* __restrict__ scores, float* __restrict__ out, float scale) {
    int head = blockIdx.x;
    size_t base = (size_t(blockIdx.y) * kHeads + head) * kPairs;
    for (int p = threadIdx.x; p < kPairs; p += 256) out[base + p] = __expf(fmaf(scores[base + p], scale, bias_table[offset_of(p) * kHeads + head]));
}

__global__ void __launch_bounds__(256) position_bias_shared(const float* __restrict__ scores, const float* __restrict__ table,
                                                            float* __restrict__ out, float scale) {
    __shared__ float bias[kOffsets];
    int head = blockIdx.x;
    if (threadIdx.x < kOffsets) bias[threadIdx.x] = table[threadIdx.x * kHeads + head];
    __syncthreads();
    size_t base = (size_t(blockIdx.y) * kHeads + head) * kPairs;
    for (int p = threadIdx.x; p < kPairs; p += 256) out[base + p] = __expf(fmaf(scores[base + p], scale, bias[offset_of(p)]));
}

struct Reference {
    const float *scores, *table;
    float scale;
    __device__ double operator()(size_t i) const {
        int head = int(i / kPairs % kHeads);
        return exp(double(scores[i]) * scale + table[offset_of(int(i % kPairs)) * kHeads + head]);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int windows = positive(args, "windows", 1024, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(windows) * kHeads * kPairs;
    float *scores = device_alloc<float>(n), *out = device_alloc<float>(n), *table = device_alloc<float>(kOffsets * kHeads);
    fill_uniform(scores, n, key, -2.0f, 2.0f);
    fill_uniform(table, size_t(kOffsets * kHeads), key + 1, -1.0f, 1.0f);
    CHECK_CUDA(cudaMemcpyToSymbol(bias_table, table, sizeof bias_table, 0, cudaMemcpyDeviceToDevice));
    poison(out, n * 4);
    auto launch = [&] {
        if (fix) position_bias_shared<<<dim3(kHeads, windows), 256>>>(scores, table, out, 0.5f);
        else position_bias<<<dim3(kHeads, windows), 256>>>(scores, out, 0.5f);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{scores, table, 0.5f});
    return report("faults/p-swin", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
