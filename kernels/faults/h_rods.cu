// Heat in rods of 1024 cells with fixed ends, explicit steps, one block a rod and a cell a thread.
#include "h_harness.cuh"

constexpr int kCells = 1024;

__global__ void __launch_bounds__(kCells) diffuse(const float* __restrict__ in, float* __restrict__ out, int steps,
                                                  float rate) {
    __shared__ float cell[2][kCells];
    int t = threadIdx.x;
    float here = in[size_t(blockIdx.x) * kCells + t];
    cell[0][t] = here;
    cell[1][t] = here;
    __syncthreads();
    bool inside = t > 0 && t < kCells - 1;
    for (int s = 0; s < steps; ++s) {
        const float* old = cell[s & 1];
        if (inside) {
            here += rate * (old[t - 1] - 2.0f * here + old[t + 1]);
            cell[(s & 1) ^ 1][t] = here;
        }
        __syncthreads();
    }
    out[size_t(blockIdx.x) * kCells + t] = here;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int rods = positive(args, "rods", 132, 1 << 16), steps = positive(args, "steps", 1500, 100000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(rods) * kCells;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.0f, 1.0f);
    poison(out, n * 4);
    const float rate = 0.2f;
    auto launch = [&] { diffuse<<<rods, kCells>>>(in, out, steps, rate); };
    launch_once(launch);
    std::vector<float> start = to_host(in, n);
    std::vector<double> ref(n), a(kCells), b(kCells);
    for (int r = 0; r < rods; ++r) {
        for (int i = 0; i < kCells; ++i) a[i] = b[i] = start[size_t(r) * kCells + i];
        for (int s = 0; s < steps; ++s) {
            for (int i = 1; i < kCells - 1; ++i) b[i] = a[i] + double(rate) * (a[i - 1] - 2 * a[i] + a[i + 1]);
            std::swap(a, b);
        }
        std::copy(a.begin(), a.end(), ref.begin() + size_t(r) * kCells);
    }
    double error = relative_error(to_host(out, n), ref);
    double us = median_us(launch, reps);
    return report("faults/h-rods", us, 4.0 * double(n) * steps, 0, error, 1e-5);
}
