// Samples a token a row by the Gumbel trick: the largest of logit / temperature - log(-log(u)) over the vocabulary, u from a counter-based
// generator. A block a row. --variant fault: the guards against log(0) are literals without an f; fix: float throughout.
#include "p_harness.cuh"

__host__ __device__ inline uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// In (0, 1), of 23 bits, so that float and double see the same number.
__host__ __device__ inline float uniform(uint32_t index, uint32_t key) { return (float(mixed(index ^ key) >> 9) + 0.5f) * 0x1p-23f; }

struct GuardedNoise {
    static __device__ __forceinline__ float of(float u) { return -log(-log(u + 1e-20) + 1e-20); }
};

struct FloatNoise {
    static __device__ __forceinline__ float of(float u) { return -__logf(-logf(u)); }  // u near 1: the inner one must be exact
};

struct Best {
    float score;
    int token;
    __device__ __forceinline__ void take(float s, int t) {
        if (s > score || (s == score && t < token)) {
            score = s;
            token = t;
        }
    }
    __device__ __forceinline__ void across_warp() {
#pragma unroll
        for (int step = 16; step; step >>= 1) {
            float s = __shfl_xor_sync(0xffffffffu, score, step);
            int t = __shfl_xor_sync(0xffffffffu, token, step);
            take(s, t);
        }
    }
};

template <class Noise>
__device__ __forceinline__ void sample(const float* logits, int* token, float* score, int vocabulary, float inverse_temperature, uint32_t key) {
    __shared__ Best warps[8];
    const float4* row = reinterpret_cast<const float4*>(logits + size_t(blockIdx.x) * vocabulary);
    const uint32_t first = blockIdx.x * uint32_t(vocabulary);
    Best best{-INFINITY, 0};
#pragma unroll 2
    for (int i = threadIdx.x; i < vocabulary / 4; i += 256) {
        float4 v = row[i];
        best.take(fmaf(v.x, inverse_temperature, Noise::of(uniform(first + 4 * i, key))), 4 * i);
        best.take(fmaf(v.y, inverse_temperature, Noise::of(uniform(first + 4 * i + 1, key))), 4 * i + 1);
        best.take(fmaf(v.z, inverse_temperature, Noise::of(uniform(first + 4 * i + 2, key))), 4 * i + 2);
        best.take(fmaf(v.w, inverse_temperature, Noise::of(uniform(first + 4 * i + 3, key))), 4 * i + 3);
    }
    best.across_warp();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
        best = warps[threadIdx.x % 8];
        best.across_warp();
        if (threadIdx.x == 0) {
            token[blockIdx.x] = best.token;
            score[blockIdx.x] = best.score;
        }
    }
}

__global__ void __launch_bounds__(256) gumbel_sample(const float* __restrict__ logits, int* __restrict__ token, float* __restrict__ score,
                                                     int vocabulary, float inverse_temperature, uint32_t key) {
    sample<GuardedNoise>(logits, token, score, vocabulary, inverse_temperature, key);
}

__global__ void __launch_bounds__(256) gumbel_sample_float(const float* __restrict__ logits, int* __restrict__ token, float* __restrict__ score,
                                                           int vocabulary, float inverse_temperature, uint32_t key) {
    sample<FloatNoise>(logits, token, score, vocabulary, inverse_temperature, key);
}

// The largest score of row i, or (with `token`) the score of the token that was chosen.
struct Reference {
    const float* logits;
    const int* token;
    int vocabulary;
    float inverse_temperature;
    uint32_t key;
    __device__ double score(size_t row, int t) const {
        uint32_t index = uint32_t(row) * uint32_t(vocabulary) + uint32_t(t);
        return double(logits[row * vocabulary + t]) * inverse_temperature - log(-log(double(uniform(index, key))));
    }
    __device__ double operator()(size_t row) const {
        if (token) return score(row, token[row]);
        double best = -INFINITY;
        for (int t = 0; t < vocabulary; ++t) best = fmax(best, score(row, t));
        return best;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 4096, 65536), vocabulary = positive(args, "vocabulary", 32000, 65532);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(vocabulary % 4 == 0, "--vocabulary must be a multiple of 4");
    size_t n = size_t(rows) * vocabulary;
    float *logits = device_alloc<float>(n), *score = device_alloc<float>(rows);
    int* token = device_alloc<int>(rows);
    fill_uniform(logits, n, key, -8.0f, 8.0f);
    poison(token, size_t(rows) * 4);
    poison(score, size_t(rows) * 4);
    const float inverse = 1.25f;
    const uint32_t noise = uint32_t(diagnose_hash(key + 9));
    auto launch = [&] {
        auto kernel = fix ? gumbel_sample_float : gumbel_sample;
        kernel<<<rows, 256>>>(logits, token, score, vocabulary, inverse, noise);
    };
    launch_once(launch);
    for (int t : to_host(token, size_t(rows))) require(t >= 0 && t < vocabulary, "no such token: " + std::to_string(t));
    double error = std::max(device_error(score, size_t(rows), Reference{logits, nullptr, vocabulary, inverse, noise}),
                            device_error(score, size_t(rows), Reference{logits, token, vocabulary, inverse, noise}));
    return report("faults/p-gumbel", median_us(launch, reps), 0, 4.0 * n, error, 1e-4);
}
