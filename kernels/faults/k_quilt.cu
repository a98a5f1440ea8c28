// Leapfrog integration of n Henon-Heiles orbits, one a thread; the final energies of a block's 32 x 32 orbits leave transposed.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr float kStep = 0.01f;

__host__ __device__ inline float orbit(float x, float y, int steps) {
    float px = 0.125f, py = 0.0625f;
    for (int s = 0; s < steps; ++s) {
        float force = fmaf(y + y, x, x);
        px = fmaf(-kStep, force, px);
        float other = fmaf(-y, y, fmaf(x, x, y));
        py = fmaf(-kStep, other, py);
        x = fmaf(kStep, px, x);
        y = fmaf(kStep, py, y);
    }
    return fmaf(px, px, fmaf(py, py, fmaf(x, x, y * y)));
}

__global__ void __launch_bounds__(1024) orbits(const float2* __restrict__ start, float* __restrict__ energy, int steps) {
    __shared__ float stage[32 * 32];
    int t = threadIdx.x, column = t % 32, row = t / 32;
    size_t first = size_t(blockIdx.x) * 1024;
    float2 at = start[first + t];
    stage[column * 32 + row] = orbit(at.x, at.y, steps);
    __syncthreads();
    energy[first + t] = stage[t];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 1081344, 1 << 24), steps = positive(args, "steps", 600, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 1024 == 0, "--n must be a multiple of 1024");
    float *start = device_alloc<float>(size_t(n) * 2), *energy = device_alloc<float>(n);
    fill_uniform(start, size_t(n) * 2, key, -0.1f, 0.1f);
    poison(energy, size_t(n) * sizeof(float));
    auto launch = [&] { orbits<<<n / 1024, 1024>>>(reinterpret_cast<float2*>(start), energy, steps); };
    launch_once(launch);
    std::vector<float> from = to_host(start, size_t(n) * 2);
    auto wanted = [&](size_t i) {
        size_t in_block = i % 1024, source = i - in_block + in_block % 32 * 32 + in_block / 32;
        return orbit(from[2 * source], from[2 * source + 1], steps);
    };
    double error = sampled_error(to_host(energy, n), wanted, 5000);
    return report("faults/k-quilt", median_us(launch, reps), 14.0 * n * steps, 0, error, 1e-5);
}
