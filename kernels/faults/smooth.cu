// Smoothing of rings of 1024 values held in shared memory, with a polynomial limiter after each step.
#include "pair.cuh"
constexpr int kRing = 1024;

__host__ __device__ inline float limit(float v) {
    float p = 0.001f;
#pragma unroll
    for (int k = 0; k < 24; ++k) p = fmaf(p, v, 0.01f);
    return fmaf(p, 0.1f, v * 0.9f);
}

// The first warp limits all values, the other warps wait for it.
__global__ void __launch_bounds__(kRing, 1) smooth_first(const float* in, float* out, int steps) {
    __shared__ float ring[2][kRing];
    int t = threadIdx.x;
    ring[0][t] = in[size_t(blockIdx.x) * kRing + t];
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        ring[1][t] = 0.25f * ring[0][(t + kRing - 1) % kRing] + 0.5f * ring[0][t] + 0.25f * ring[0][(t + 1) % kRing];
        __syncthreads();
        if (t < 32)
            for (int j = t; j < kRing; j += 32) ring[0][j] = limit(ring[1][j]);
        __syncthreads();
    }
    out[size_t(blockIdx.x) * kRing + t] = ring[0][t];
}

// Every thread limits its own value.
__global__ void __launch_bounds__(kRing, 1) smooth_each(const float* in, float* out, int steps) {
    __shared__ float ring[2][kRing];
    int t = threadIdx.x;
    ring[0][t] = in[size_t(blockIdx.x) * kRing + t];
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        ring[1][t] = 0.25f * ring[0][(t + kRing - 1) % kRing] + 0.5f * ring[0][t] + 0.25f * ring[0][(t + 1) % kRing];
        __syncthreads();
        ring[0][t] = limit(ring[1][t]);
        __syncthreads();
    }
    out[size_t(blockIdx.x) * kRing + t] = ring[0][t];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int rings = int(args.get("rings", 2112)), steps = int(args.get("steps", 64)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(rings > 0 && steps > 0, "--rings and --steps must be positive");
    size_t n = size_t(rings) * kRing;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.f, 1.f);
    auto hi = to_host(in, n);
    // A value depends on its whole ring: whole rings are simulated, the last one asked for is kept.
    std::vector<double> ring(kRing), next(kRing);
    size_t held = SIZE_MAX;
    auto reference = [&](size_t i) {
        if (i / kRing != held) {
            held = i / kRing;
            for (int t = 0; t < kRing; ++t) ring[t] = hi[held * kRing + t];
            for (int s = 0; s < steps; ++s) {
                for (int t = 0; t < kRing; ++t) {
                    double v = 0.25 * ring[(t + kRing - 1) % kRing] + 0.5 * ring[t] + 0.25 * ring[(t + 1) % kRing], p = 0.001;
                    for (int k = 0; k < 24; ++k) p = p * v + 0.01;
                    next[t] = p * 0.1 + v * 0.9;
                }
                ring.swap(next);
            }
        }
        return ring[i % kRing];
    };
    auto launch = [&] {
        if (fault) smooth_first<<<rings, kRing>>>(in, out, steps);
        else smooth_each<<<rings, kRing>>>(in, out, steps);
    };
    return run_checked(fault ? "faults/smooth-first" : "faults/smooth-each", reps, launch, out, n, reference, 55.0 * n * steps,
                       8.0 * n, 1e-3, 256);
}
