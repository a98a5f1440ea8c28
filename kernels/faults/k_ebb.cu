// Lorenz trajectories with 32 checkpoints each, kept in shared memory until the end. --variant sets the block's size.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kPoints = 32;
constexpr float kStep = 0.002f;

struct Point {
    float x, y, z;
};

__host__ __device__ inline Point advance(Point p, int steps) {
    for (int s = 0; s < steps; ++s) {
        float dx = 10.0f * (p.y - p.x), dy = fmaf(p.x, 28.0f - p.z, -p.y), dz = fmaf(p.x, p.y, -2.6666667f * p.z);
        p.x = fmaf(kStep, dx, p.x);
        p.y = fmaf(kStep, dy, p.y);
        p.z = fmaf(kStep, dz, p.z);
    }
    return p;
}

__global__ void __launch_bounds__(1024) trajectories(const float* __restrict__ start, float* __restrict__ out, int n, int steps) {
    extern __shared__ float points[];
    int t = threadIdx.x, block = blockDim.x, id = blockIdx.x * block + t;
    Point p{start[id], start[n + id], 20.0f};
    for (int k = 0; k < kPoints; ++k) {
        p = advance(p, steps);
        points[k * block + t] = p.x;
    }
    for (int k = 0; k < kPoints; ++k) out[size_t(k) * n + id] = points[k * block + t];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 143360, 1 << 22), steps = positive(args, "steps", 160, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 1024 == 0, "--n must be a multiple of 1024");
    float *start = device_alloc<float>(size_t(n) * 2), *out = device_alloc<float>(size_t(n) * kPoints);
    fill_uniform(start, size_t(n) * 2, key, 1.0f, 9.0f);
    poison(out, size_t(n) * kPoints * sizeof(float));
    int block = fix ? 128 : 1024;
    size_t bytes = size_t(block) * kPoints * sizeof(float);
    allow_smem(trajectories, bytes);
    auto launch = [&] { trajectories<<<n / block, block, bytes>>>(start, out, n, steps); };
    launch_once(launch);
    std::vector<float> from = to_host(start, size_t(n) * 2);
    // The early checkpoints, before chaos has made rounding visible, and then every one by the same operations.
    auto wanted = [&](size_t i) { return advance(Point{from[i % n], from[n + i % n], 20.0f}, steps * int(i / n + 1)).x; };
    double error = sampled_error(to_host(out, size_t(n) * kPoints), wanted, 1000);
    return report("faults/k-ebb", median_us(launch, reps), 13.0 * n * steps * kPoints, 0, error, 1e-4);
}
