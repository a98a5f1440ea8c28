// Screened (Yukawa) potential of n charges at each other's places, FP32; a block takes 128 places and a share of the charges.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kBlock = 128, kShares = 4;
constexpr float kSoft = 1e-3f, kScreen = 1.7f;

__global__ void __launch_bounds__(kBlock) potential(const float4* __restrict__ charge, float* __restrict__ out, int n, float screen) {
    __shared__ float4 tile[kBlock];
    int i = blockIdx.x * kBlock + threadIdx.x, share = n / kShares;
    float4 me = charge[i];
    float sum = 0;
    for (int base = blockIdx.y * share; base < int(blockIdx.y + 1) * share; base += kBlock) {
        tile[threadIdx.x] = charge[base + threadIdx.x];
        __syncthreads();
#pragma unroll 16
        for (int j = 0; j < kBlock; ++j) {
            float4 other = tile[j];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, kSoft))), inverse, weight;
            asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(r2));
            asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"(screen * (r2 * inverse)));
            sum = fmaf(other.w * inverse, weight, sum);
        }
        __syncthreads();
    }
    atomicAdd(out + i, sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 33792, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % (kBlock * kShares) == 0, "--n must be a multiple of 512");
    float *charge = device_alloc<float>(size_t(n) * 4), *out = device_alloc<float>(n);
    fill_uniform(charge, size_t(n) * 4, key, 0.1f, 1.0f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(out, 0, size_t(n) * sizeof(float)));
        potential<<<dim3(n / kBlock, kShares), kBlock>>>(reinterpret_cast<float4*>(charge), out, n, -kScreen * 1.44269504f);
    };
    launch_once(launch);
    std::vector<float> c = to_host(charge, size_t(n) * 4);
    auto wanted = [&](size_t i) {
        double sum = 0;
        for (int j = 0; j < n; ++j) {
            double r2 = kSoft;
            for (int k = 0; k < 3; ++k) {
                double d = double(c[size_t(j) * 4 + k]) - c[i * 4 + k];
                r2 += d * d;
            }
            double r = std::sqrt(r2);
            sum += c[size_t(j) * 4 + 3] / r * std::exp(-double(kScreen) * r);
        }
        return sum;
    };
    double error = sampled_error(to_host(out, n), wanted, 200);
    return report("faults/k-plasma", median_us(launch, reps), 16.0 * n * double(n), 0, error, 1e-4);
}
