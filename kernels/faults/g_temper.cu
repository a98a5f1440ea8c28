// Softmax denominators of every row of 4096 scores at 64 temperatures.
#include "g_util.cuh"
using namespace held;

constexpr int kScores = 4096, kTemperatures = 64;

__global__ void __launch_bounds__(256) temper_rows(const float4* scores, const float* inverse, float* sums) {
    __shared__ float part[8][kTemperatures], beta[kTemperatures];
    if (threadIdx.x < kTemperatures) beta[threadIdx.x] = inverse[threadIdx.x] * 1.4426950408889634f;
    float s[16];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float4 v = scores[size_t(blockIdx.x) * (kScores / 4) + i * 256 + threadIdx.x];
        s[4 * i] = v.x, s[4 * i + 1] = v.y, s[4 * i + 2] = v.z, s[4 * i + 3] = v.w;
    }
    __syncthreads();
#pragma unroll 2
    for (int t = 0; t < kTemperatures; ++t) {
        float b = beta[t], sum = 0, other = 0;
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            sum += ex2(s[i] * b);
            other += ex2(s[i + 1] * b);
        }
        sum += other;
#pragma unroll
        for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32][t] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kTemperatures) {
        float sum = 0;
        for (int w = 0; w < 8; ++w) sum += part[w][threadIdx.x];
        sums[size_t(blockIdx.x) * kTemperatures + threadIdx.x] = sum;
    }
}

__global__ void reference_temper(const float* scores, const float* inverse, float* sums) {
    double sum = 0, b = inverse[threadIdx.x];
    for (int i = 0; i < kScores; ++i) sum += exp(double(scores[size_t(blockIdx.x) * kScores + i]) * b);
    sums[size_t(blockIdx.x) * kTemperatures + threadIdx.x] = float(sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int rows = int(args.get("rows", 8192));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(rows > 0 && rows <= 65536, "--rows out of range");
    float* scores = device_alloc<float>(size_t(rows) * kScores);
    float* inverse = device_alloc<float>(kTemperatures);
    size_t n = size_t(rows) * kTemperatures;
    float *sums = device_alloc<float>(n), *ref = device_alloc<float>(n);
    fill_uniform(scores, size_t(rows) * kScores, s, -8.0f, 0.0f);
    fill_uniform(inverse, kTemperatures, s + 1, 0.25f, 2.0f);
    reference_temper<<<rows, kTemperatures>>>(scores, inverse, ref);
    poison(sums, n * 4);
    finish();
    auto launch = [&] { temper_rows<<<rows, 256>>>(reinterpret_cast<const float4*>(scores), inverse, sums); };
    launch();
    finish();
    double error = device_error(sums, ref, n);
    return report("faults/g-temper", median_us(launch, reps), double(rows) * kScores * kTemperatures, 0, error, 1e-4);
}
