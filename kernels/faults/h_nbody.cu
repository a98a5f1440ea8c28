// Gravity of n bodies on each other, all pairs, FP32.
#include "h_harness.cuh"

constexpr int kBlock = 128;
constexpr float kSoft = 1e-3f;

__global__ void __launch_bounds__(kBlock) forces(const float4* __restrict__ body, float* __restrict__ out, int n) {
    __shared__ float4 tile[kBlock];
    int i = blockIdx.x * kBlock + threadIdx.x;
    float4 me = body[i];
    float ax = 0, ay = 0, az = 0;
    for (int base = 0; base < n; base += kBlock) {
        __syncthreads();
        tile[threadIdx.x] = body[base + threadIdx.x];
        __syncthreads();
#pragma unroll 16
        for (int j = 0; j < kBlock; ++j) {
            float4 other = tile[j];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + kSoft);
            float f = other.w * inverse * inverse * inverse;
            ax += dx * f;
            ay += dy * f;
            az += dz * f;
        }
    }
    out[i] = ax;
    out[n + i] = ay;
    out[2 * n + i] = az;
}

__global__ void reference_forces(const float4* body, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = body[i];
    double ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; ++j) {
        float4 other = body[j];
        double dx = double(other.x) - me.x, dy = double(other.y) - me.y, dz = double(other.z) - me.z;
        double inverse = rsqrt(dx * dx + dy * dy + dz * dz + double(kSoft));
        double f = other.w * inverse * inverse * inverse;
        ax += dx * f;
        ay += dy * f;
        az += dz * f;
    }
    out[i] = ax;
    out[n + i] = ay;
    out[2 * n + i] = az;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 50688, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % kBlock == 0, "--n must be a multiple of 128");
    float *body = device_alloc<float>(size_t(n) * 4), *out = device_alloc<float>(size_t(n) * 3);
    double* ref = device_alloc<double>(size_t(n) * 3);
    fill_uniform(body, size_t(n) * 4, key, 0.1f, 1.0f);
    poison(out, size_t(n) * 3 * sizeof(float));
    auto bodies = reinterpret_cast<float4*>(body);
    auto launch = [&] { forces<<<n / kBlock, kBlock>>>(bodies, out, n); };
    launch_once(launch);
    reference_forces<<<blocks_for(n, 128), 128>>>(bodies, ref, n);
    CHECK_CUDA(cudaGetLastError());
    double error = relative_error(to_host(out, size_t(n) * 3), to_host(ref, size_t(n) * 3));
    double us = median_us(launch, reps);
    return report("faults/h-nbody", us, 20.0 * n * double(n), 0, error, 1e-4);
}
