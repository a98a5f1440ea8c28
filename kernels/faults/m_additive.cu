// Scores of additive attention: s[query][key] = sum over d of w[d] * tanh(q[query][d] + k[key][d]), 128 dimensions.
#include "h_harness.cuh"

constexpr int kDim = 128, kPart = 64, kQueries = 16, kKeys = 128;

__device__ __forceinline__ float fast_tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A key a thread; sixteen queries in its registers.
__global__ void __launch_bounds__(kKeys) additive_scores(const float* __restrict__ q, const float* __restrict__ k,
                                                         const float* __restrict__ w, float* __restrict__ scores, int queries, int keys) {
    __shared__ float sk[kPart][kKeys + 1], sw[kPart];
    __shared__ float4 sq[kPart][kQueries / 4];
    const float* gq = q + (size_t(blockIdx.z) * queries + blockIdx.y * kQueries) * kDim;
    const float* gk = k + (size_t(blockIdx.z) * keys + blockIdx.x * kKeys) * kDim;
    float sum[kQueries] = {};
    for (int part = 0; part < kDim; part += kPart) {
        for (int i = threadIdx.x; i < kPart * kKeys; i += kKeys) sk[i % kPart][i / kPart] = gk[size_t(i / kPart) * kDim + part + i % kPart];
        for (int i = threadIdx.x; i < kPart * kQueries; i += kKeys)
            reinterpret_cast<float*>(sq[i % kPart])[i / kPart] = gq[size_t(i / kPart) * kDim + part + i % kPart];
        if (threadIdx.x < kPart) sw[threadIdx.x] = w[part + threadIdx.x];
        __syncthreads();
#pragma unroll 2
        for (int d = 0; d < kPart; ++d) {
            float key = sk[d][threadIdx.x], weight = sw[d];
#pragma unroll
            for (int j = 0; j < kQueries / 4; ++j) {
                float4 v = sq[d][j];
                sum[4 * j] += weight * fast_tanh(v.x + key);
                sum[4 * j + 1] += weight * fast_tanh(v.y + key);
                sum[4 * j + 2] += weight * fast_tanh(v.z + key);
                sum[4 * j + 3] += weight * fast_tanh(v.w + key);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < kQueries; ++j)
        scores[(size_t(blockIdx.z) * queries + blockIdx.y * kQueries + j) * keys + blockIdx.x * kKeys + threadIdx.x] = sum[j];
}

struct Reference {
    const float *q, *k, *w;
    int queries, keys;
    __device__ double operator()(size_t i) const {
        size_t row = i / keys, column = row / queries * keys + i % keys;
        double sum = 0;
        for (int d = 0; d < kDim; ++d) {
            // tanh from exponentials in FP32 (accurate to some ulps), summed in double
            float x = q[row * kDim + d] + k[column * kDim + d], e = expf(-2.0f * fabsf(x)), t = (1.0f - e) / (1.0f + e);
            sum += double(w[d]) * double(copysignf(t, x));
        }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int batch = positive(args, "batch", 8, 1024), queries = positive(args, "queries", 528, 65520), keys = positive(args, "keys", 2048, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(queries % kQueries == 0 && keys % kKeys == 0, "--queries must be a multiple of 16, --keys of 128");
    size_t n = size_t(batch) * queries * keys;
    float *q = device_alloc<float>(size_t(batch) * queries * kDim), *k = device_alloc<float>(size_t(batch) * keys * kDim);
    float *w = device_alloc<float>(kDim), *scores = device_alloc<float>(n);
    fill_uniform(q, size_t(batch) * queries * kDim, key, -1.0f, 1.0f);
    fill_uniform(k, size_t(batch) * keys * kDim, key + 1, -1.0f, 1.0f);
    fill_uniform(w, kDim, key + 2, 0.0f, 1.0f);
    poison(scores, n * sizeof(float));
    auto launch = [&] { additive_scores<<<dim3(keys / kKeys, queries / kQueries, batch), kKeys>>>(q, k, w, scores, queries, keys); };
    launch_once(launch);
    double error = device_error(scores, n, Reference{q, k, w, queries, keys});
    return report("faults/m-additive", median_us(launch, reps), 3.0 * double(n) * kDim, 0, error, 5e-3);
}
