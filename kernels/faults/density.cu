// Kernel density estimate: out[i] = sum over the centres of 2^-(x - c)^2, centres broadcast from shared memory.
#include "pair.cuh"
constexpr int kTile = 1024;

__device__ __forceinline__ float exp2_fast(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

__global__ void __launch_bounds__(256) density(const float* x, const float* centres, float* out, int n, int m) {
    __shared__ float4 tile[kTile / 4];
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
    float2 v = i < n ? *reinterpret_cast<const float2*>(x + i) : make_float2(0, 0);
    float s0 = 0, s1 = 0;
    for (int start = 0; start < m; start += kTile) {
        __syncthreads();
        for (int j = threadIdx.x; j < kTile / 4; j += blockDim.x) tile[j] = reinterpret_cast<const float4*>(centres + start)[j];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < kTile / 4; ++j) {
            float4 c = tile[j];
            float d[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float a = v.x - d[e], b = v.y - d[e];
                s0 += exp2_fast(-a * a), s1 += exp2_fast(-b * b);
            }
        }
    }
    if (i < n) *reinterpret_cast<float2*>(out + i) = make_float2(s0, s1);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = int(args.get("n", 1048576)), m = int(args.get("m", 2048)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && n % 2 == 0 && m > 0 && m % kTile == 0, "--n must be even, --m a multiple of 1024");
    float *x = device_alloc<float>(n), *c = device_alloc<float>(m), *out = device_alloc<float>(n);
    fill_uniform(x, n, key, -2.f, 2.f);
    fill_uniform(c, m, key + 1, -2.f, 2.f);
    auto hx = to_host(x, n), hc = to_host(c, m);
    auto reference = [&](size_t i) {
        double s = 0;
        for (int j = 0; j < m; ++j) s += std::exp2(-(double(hx[i]) - hc[j]) * (double(hx[i]) - hc[j]));
        return s;
    };
    auto launch = [&] { density<<<(n / 2 + 255) / 256, 256>>>(x, c, out, n, m); };
    return run_checked("faults/density", reps, launch, out, n, reference, 4.0 * n * m, 8.0 * n, 1e-4);
}
