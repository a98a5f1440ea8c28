// A reaction mechanism as a generator writes it: every reaction is its own line of code with its own rate constant.
#include "h_harness.cuh"

constexpr int kSpecies = 8, kReactions = 12288, kPart = 1024;

__host__ __device__ constexpr float rate(int i) {
    unsigned h = unsigned(i) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float(h >> 8) * 0x1p-24f - 0.5f) * 0.002f;
}
__host__ __device__ constexpr int partner(int i) { return (i * 5 + i / 8 + 3) % kSpecies; }

template <int FIRST>
__device__ __forceinline__ void react(float (&s)[kSpecies]) {
#pragma unroll
    for (int i = FIRST; i < FIRST + kPart; ++i) s[i % kSpecies] = fmaf(s[partner(i)], rate(i), s[i % kSpecies]);
    if constexpr (FIRST + kPart < kReactions) react<FIRST + kPart>(s);
}

__global__ void __launch_bounds__(256) mechanism(const float* __restrict__ in, float* __restrict__ out, int n, int steps) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float s[kSpecies];
#pragma unroll
    for (int k = 0; k < kSpecies; ++k) s[k] = in[size_t(k) * n + i];
#pragma unroll 1
    for (int step = 0; step < steps; ++step) react<0>(s);
#pragma unroll
    for (int k = 0; k < kSpecies; ++k) out[size_t(k) * n + i] = s[k];
}

__global__ void reference_mechanism(const float* in, double* out, const float* rates, int n, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s[kSpecies];
    for (int k = 0; k < kSpecies; ++k) s[k] = in[size_t(k) * n + i];
    for (int step = 0; step < steps; ++step)
        for (int r = 0; r < kReactions; r += kSpecies)
#pragma unroll
            for (int k = 0; k < kSpecies; ++k) {
                double other = 0;
#pragma unroll
                for (int p = 0; p < kSpecies; ++p)
                    if (p == partner(r + k)) other = s[p];
                s[k] += other * rates[r + k];
            }
    for (int k = 0; k < kSpecies; ++k) out[size_t(k) * n + i] = s[k];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 33792, 1 << 22), steps = positive(args, "steps", 24, 1 << 12);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 256 == 0, "--n must be a multiple of 256");
    size_t cells = size_t(n) * kSpecies;
    float *in = device_alloc<float>(cells), *out = device_alloc<float>(cells), *rates = device_alloc<float>(kReactions);
    double* ref = device_alloc<double>(cells);
    std::vector<float> table(kReactions);
    for (int i = 0; i < kReactions; ++i) table[i] = rate(i);
    CHECK_CUDA(cudaMemcpy(rates, table.data(), kReactions * sizeof(float), cudaMemcpyHostToDevice));
    fill_uniform(in, cells, key, 0.5f, 1.5f);
    poison(out, cells * sizeof(float));
    auto launch = [&] { mechanism<<<n / 256, 256>>>(in, out, n, steps); };
    launch_once(launch);
    reference_mechanism<<<n / 128, 128>>>(in, ref, rates, n, steps);
    CHECK_CUDA(cudaGetLastError());
    double error = relative_error(to_host(out, cells), to_host(ref, cells));
    return report("faults/k-mill", median_us(launch, reps), 2.0 * kReactions * steps * double(n), 0, error, 1e-4);
}
