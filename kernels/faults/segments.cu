// Sum of 64 polynomials of degree 512, each warp starting with another one: as straight code, or from a table whose terms
// serve several arguments a thread.
#include "pair.cuh"
constexpr int kSegments = 64, kTerms = 512;

__host__ __device__ constexpr float coefficient(int segment, int term) {
    unsigned h = (unsigned(segment) * 512u + unsigned(term) + 1u) * 2654435761u;
    return float((h >> 8) & 0xffffu) / 65536.0f - 0.5f;
}

// Each instance is 512 multiply-adds with their own immediate operand: 8 KB of code, 512 KB in all.
template <int S>
__device__ __noinline__ float polynomial(float x) {
    float y = 0;
#pragma unroll
    for (int t = 0; t < kTerms; ++t) y = fmaf(y, x, coefficient(S, t));
    return y;
}

#define C1(s) case s: sum += polynomial<s>(v); break;
#define C4(s) C1(s) C1(s + 1) C1(s + 2) C1(s + 3)
#define C16(s) C4(s) C4(s + 4) C4(s + 8) C4(s + 12)
__global__ void __launch_bounds__(256) terms_written(const float* x, const float*, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[min(i, n - 1)], sum = 0;
    unsigned first = (threadIdx.x / 32) * 8 + blockIdx.x * 5;
#pragma unroll 1
    for (unsigned k = 0; k < kSegments; ++k) {
        switch ((first + k) % kSegments) { C16(0) C16(16) C16(32) C16(48) }
    }
    if (i < n) out[i] = sum;
}

// A load of four terms is used for 32 multiply-adds in eight chains: for one argument a thread the loads would fill L1.
constexpr int kListThreads = 128, kEach = 8;
__global__ void __launch_bounds__(kListThreads) terms_listed(const float* x, const float* table, float* out, int n) {
    int i = blockIdx.x * kListThreads * kEach + threadIdx.x;
    float v[kEach], sum[kEach] = {};
#pragma unroll
    for (int e = 0; e < kEach; ++e) v[e] = x[min(i + e * kListThreads, n - 1)];
    unsigned first = (threadIdx.x / 32) * 8 + blockIdx.x * 5;
#pragma unroll 1
    for (unsigned k = 0; k < kSegments; ++k) {
        const float4* row = reinterpret_cast<const float4*>(table + (first + k) % kSegments * kTerms);
        float y[kEach] = {};
#pragma unroll 4
        for (int t = 0; t < kTerms / 4; ++t) {
            float4 c = row[t];
#pragma unroll
            for (int e = 0; e < kEach; ++e) y[e] = fmaf(fmaf(fmaf(fmaf(y[e], v[e], c.x), v[e], c.y), v[e], c.z), v[e], c.w);
        }
#pragma unroll
        for (int e = 0; e < kEach; ++e) sum[e] += y[e];
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e)
        if (i + e * kListThreads < n) out[i + e * kListThreads] = sum[e];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int n = int(args.get("n", 540672)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0, "--n must be positive");
    std::vector<float> host(kSegments * kTerms);
    for (int s = 0; s < kSegments; ++s)
        for (int t = 0; t < kTerms; ++t) host[s * kTerms + t] = coefficient(s, t);
    float *x = device_alloc<float>(n), *table = device_alloc<float>(host.size()), *out = device_alloc<float>(n);
    CHECK_CUDA(cudaMemcpy(table, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    fill_uniform(x, n, key, -0.95f, 0.95f);
    auto hx = to_host(x, n);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int s = 0; s < kSegments; ++s) {
            double y = 0;
            for (int t = 0; t < kTerms; ++t) y = y * hx[i] + host[s * kTerms + t];
            sum += y;
        }
        return sum;
    };
    auto launch = [&] {
        if (fault) terms_written<<<(n + 255) / 256, 256>>>(x, table, out, n);
        else terms_listed<<<(n + kListThreads * kEach - 1) / (kListThreads * kEach), kListThreads>>>(x, table, out, n);
    };
    return run_checked(fault ? "faults/terms-written" : "faults/terms-listed", reps, launch, out, n, reference,
                       2.0 * kSegments * kTerms * n, 8.0 * n, 1e-3, 512);
}
