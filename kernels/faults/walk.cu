// Damped random walk: an integer generator and a float update in about equal parts, so no single pipe fills before issue does.
#include "pair.cuh"

struct Walker {
    uint32_t state;
    float position, speed;
};
// Every float step is one fma, so the host rounds as the device does.
__host__ __device__ inline void step(Walker& w) {
    w.state = w.state * 1664525u + 1013904223u;
    uint32_t bits = (w.state >> 9) | 0x3f800000u;
#ifdef __CUDA_ARCH__
    float u = __uint_as_float(bits);
#else
    float u;
    std::memcpy(&u, &bits, 4);
#endif
    u -= 1.5f;
    w.speed = fmaf(w.speed, 0.75f, u);
    w.position = fmaf(w.speed, 0.125f, w.position);
    w.position = fmaf(w.position, -0.0625f, w.position);
    w.speed = fmaf(w.position, -0.03125f, w.speed);
    w.state ^= w.state >> 5;
}

__global__ void __launch_bounds__(256) walk(const uint32_t* start, float* out, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, half = n / 2;
    if (i >= half) return;
    Walker a{start[i], 0, 0}, b{start[i + half], 0, 0};
#pragma unroll 8
    for (int s = 0; s < steps; ++s) step(a), step(b);
    out[i] = a.position, out[i + half] = b.position;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int steps = int(args.get("steps", 512)), n = int(args.get("n", 4194304)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(steps > 0 && n > 0 && n % 2 == 0, "--steps must be positive and --n even and positive");
    uint32_t* start = device_alloc<uint32_t>(n);
    float* out = device_alloc<float>(n);
    fill_uniform(start, n, key, 0.f, 4294967296.f);
    auto hs = to_host(start, n);
    auto reference = [&](size_t i) {
        Walker w{hs[i], 0, 0};
        for (int s = 0; s < steps; ++s) step(w);
        return double(w.position);
    };
    auto launch = [&] { walk<<<(n / 2 + 255) / 256, 256>>>(start, out, steps, n); };
    return run_checked("faults/walk", reps, launch, out, n, reference, 0, 8.0 * n, 1e-3);
}
