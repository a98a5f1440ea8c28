// Lennard-Jones energy of each probe over all sources: the powers by powf, or by multiplication.
#include "pair.cuh"
constexpr int kTile = 512;

struct ByPow {
    static __device__ float energy(float r2) { return powf(r2, -6.0f) - powf(r2, -3.0f); }
};
struct ByProduct {
    static __device__ float energy(float r2) {
        float i2 = __fdividef(1.0f, r2), i6 = i2 * i2 * i2;
        return i6 * i6 - i6;
    }
};
template <class Form>
__device__ void sum_pairs(const float* probe, const float4* source, float* out, int n, int m) {
    __shared__ float4 tile[kTile];
    int i = blockIdx.x * blockDim.x + threadIdx.x, k = min(i, n - 1);
    float x = probe[k], y = probe[k + n], z = probe[k + 2 * n], sum = 0;
    for (int start = 0; start < m; start += kTile) {
        __syncthreads();
        for (int j = threadIdx.x; j < kTile; j += blockDim.x) tile[j] = source[start + j];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < kTile; ++j) {
            float dx = x - tile[j].x, dy = y - tile[j].y, dz = z - tile[j].z - 1.5f;  // sources lie beside the probes: r > 0.5
            sum += Form::energy(fmaf(dx, dx, fmaf(dy, dy, dz * dz)));
        }
    }
    if (i < n) out[i] = sum;
}
__global__ void __launch_bounds__(256) energy_general(const float* p, const float4* s, float* out, int n, int m) {
    sum_pairs<ByPow>(p, s, out, n, m);
}
__global__ void __launch_bounds__(256) energy_factored(const float* p, const float4* s, float* out, int n, int m) {
    sum_pairs<ByProduct>(p, s, out, n, m);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int n = int(args.get("n", 270336)), m = int(args.get("m", 1024)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && m > 0 && m % kTile == 0, "--n must be positive, --m a multiple of 512");
    float *probe = device_alloc<float>(3 * size_t(n)), *source = device_alloc<float>(4 * size_t(m)), *out = device_alloc<float>(n);
    fill_uniform(probe, 3 * size_t(n), key, 0.f, 1.f);
    fill_uniform(source, 4 * size_t(m), key + 1, 0.f, 1.f);
    auto hp = to_host(probe, 3 * size_t(n)), hs = to_host(source, 4 * size_t(m));
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int j = 0; j < m; ++j) {
            double dx = double(hp[i]) - hs[4 * j], dy = double(hp[i + n]) - hs[4 * j + 1], dz = double(hp[i + 2 * size_t(n)]) - hs[4 * j + 2] - 1.5;
            double i6 = 1 / std::pow(dx * dx + dy * dy + dz * dz, 3);
            sum += i6 * i6 - i6;
        }
        return sum;
    };
    auto launch = [&] {
        auto s = reinterpret_cast<const float4*>(source);
        if (fault) energy_general<<<(n + 255) / 256, 256>>>(probe, s, out, n, m);
        else energy_factored<<<(n + 255) / 256, 256>>>(probe, s, out, n, m);
    };
    return run_checked(fault ? "faults/energy-general" : "faults/energy-factored", reps, launch, out, n, reference,
                       17.0 * n * m, 16.0 * n, 1e-3);
}
