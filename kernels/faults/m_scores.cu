// Attention scores s = q k^T of bf16 heads (128 wide) with ordinary multiply-adds: 128 x 128 tiles, 8 x 8 scores a thread.
#include "h_harness.cuh"

constexpr int kDim = 128, kStep = 16, kTile = 128;

__device__ __forceinline__ void stage(const uint4* __restrict__ rows, float (*to)[kTile + 4], int part) {
    int row = threadIdx.x % kTile, half = threadIdx.x / kTile;
    uint4 v = rows[size_t(row) * (kDim / 8) + part * 2 + half];
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[half * 8 + 2 * i][row] = __uint_as_float(words[i] << 16);
        to[half * 8 + 2 * i + 1][row] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ uint2 pack(float a, float b, float c, float d) {
    __nv_bfloat162 low = __floats2bfloat162_rn(a, b), high = __floats2bfloat162_rn(c, d);
    uint2 r;
    memcpy(&r.x, &low, 4);
    memcpy(&r.y, &high, 4);
    return r;
}

__global__ void __launch_bounds__(256, 2) attention_scores(const uint4* __restrict__ q, const uint4* __restrict__ k,
                                                           __nv_bfloat16* __restrict__ scores, int tokens) {
    __shared__ __align__(16) float sq[kStep][kTile + 4], sk[kStep][kTile + 4];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const uint4* gq = q + (size_t(blockIdx.z) * tokens + blockIdx.y * kTile) * (kDim / 8);
    const uint4* gk = k + (size_t(blockIdx.z) * tokens + blockIdx.x * kTile) * (kDim / 8);
    float sum[8][8] = {};
    for (int part = 0; part < kDim / kStep; ++part) {
        stage(gq, sq, part);
        stage(gk, sk, part);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kStep; ++i) {
            float4 a0 = *reinterpret_cast<float4*>(&sq[i][ty * 4]), a1 = *reinterpret_cast<float4*>(&sq[i][64 + ty * 4]);
            float4 b0 = *reinterpret_cast<float4*>(&sk[i][tx * 4]), b1 = *reinterpret_cast<float4*>(&sk[i][64 + tx * 4]);
            const float u[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            const float v[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int r = 0; r < 8; ++r)
#pragma unroll
                for (int s = 0; s < 8; ++s) sum[r][s] += u[r] * v[s];
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        size_t row = size_t(blockIdx.z) * tokens + blockIdx.y * kTile + r / 4 * 64 + ty * 4 + r % 4;
        __nv_bfloat16* to = scores + row * tokens + blockIdx.x * kTile + tx * 4;
        *reinterpret_cast<uint2*>(to) = pack(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        *reinterpret_cast<uint2*>(to + 64) = pack(sum[r][4], sum[r][5], sum[r][6], sum[r][7]);
    }
}

struct Reference {
    const __nv_bfloat16 *q, *k;
    int tokens;
    __device__ double operator()(size_t i) const {
        size_t row = i / tokens, column = row / tokens * tokens + i % tokens;
        double sum = 0;
        for (int d = 0; d < kDim; ++d) sum += double(__bfloat162float(q[row * kDim + d])) * double(__bfloat162float(k[column * kDim + d]));
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int heads = positive(args, "heads", 66, 4096), tokens = positive(args, "tokens", 1024, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(tokens % kTile == 0, "--tokens must be a multiple of 128");
    size_t rows = size_t(heads) * tokens, n = rows * tokens;
    auto *q = device_alloc<__nv_bfloat16>(rows * kDim), *k = device_alloc<__nv_bfloat16>(rows * kDim);
    auto* scores = device_alloc<__nv_bfloat16>(n);
    fill_uniform(q, rows * kDim, key, -1.0f, 1.0f);
    fill_uniform(k, rows * kDim, key + 1, -1.0f, 1.0f);
    poison(scores, n * 2);
    auto launch = [&] {
        attention_scores<<<dim3(tokens / kTile, tokens / kTile, heads), 256>>>(reinterpret_cast<uint4*>(q), reinterpret_cast<uint4*>(k), scores,
                                                                               tokens);
    };
    launch_once(launch);
    double error = device_error(scores, n, Reference{q, k, tokens});
    return report("faults/m-scores", median_us(launch, reps), 2.0 * double(n) * kDim, 0, error, 1e-2);
}
