// Reaction and diffusion on rods of 1024 cells, a block a rod: a step needs the neighbours of the last one, so a rod
// cannot be spread over SMs, and there are only 16 of them.
#include "memory.cuh"

constexpr int CELLS = 1024, CHAINS = 4, TERMS = 32;

template <class T>
__host__ __device__ T coefficient(int k) {
    return T((k * 5 + 3) % 16 - 8) * T(1.0 / 64);
}

// Four polynomials of 32 terms: the arithmetic of a step outweighs its barriers. The small factor in advance() keeps
// |u| below 1.
template <class T>
__host__ __device__ T reaction(T u) {
    T sum[CHAINS];
    for (int c = 0; c < CHAINS; ++c) sum[c] = T(c) * T(0.0625);
    for (int k = 0; k < TERMS; ++k)
        for (int c = 0; c < CHAINS; ++c) sum[c] = sum[c] * u + coefficient<T>(k + c);
    return (sum[0] + sum[1]) - (sum[2] - sum[3]);
}

template <class T>
__host__ __device__ T advance(T left, T u, T right) {
    return u * T(0.5) + (left + right) * T(0.125) + reaction(u) * T(0.001953125);
}

__global__ void __launch_bounds__(CELLS) step_rods(const float* __restrict__ start, float* __restrict__ out, int steps) {
    __shared__ float cells[2][CELLS + 2];
    int i = threadIdx.x + 1, side = 0;
    float u = start[blockIdx.x * CELLS + threadIdx.x];
    if (threadIdx.x < 2) cells[threadIdx.x][0] = cells[threadIdx.x][CELLS + 1] = 0;
    for (int step = 0; step < steps; ++step, side ^= 1) {
        cells[side][i] = u;
        __syncthreads();
        u = advance(cells[side][i - 1], u, cells[side][i + 1]);
    }
    out[blockIdx.x * CELLS + threadIdx.x] = u;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int r = repeats(args);
    auto s = seed(args);
    size_t rods = size_arg(args, "rods", 16);
    int steps = int(size_arg(args, "steps", 500));
    require(rods <= 65535, "--rods is at most 65535");
    args.done();
    size_t n = rods * CELLS;
    auto start = device_alloc<float>(n), out = device_alloc<float>(n);
    fill_uniform(start, n, s, -1, 1);
    poison(out, 4 * n);
    auto launch = [&] { step_rods<<<unsigned(rods), CELLS>>>(start, out, steps); };
    run_once(launch);
    auto h = to_host(start, n);
    std::vector<double> ref(h.begin(), h.end()), last(CELLS + 2);
    for (size_t rod = 0; rod < rods; ++rod)
        for (int step = 0; step < steps; ++step) {
            double* u = ref.data() + rod * CELLS;
            std::copy(u, u + CELLS, last.begin() + 1);
            for (int i = 0; i < CELLS; ++i) u[i] = advance(last[i], last[i + 1], last[i + 2]);
        }
    double flops = 256.0 * n * steps;
    return report("faults/step-rods", median_us(launch, r), flops, 8.0 * n, relative_error(to_host(out, n), ref), 1e-4);
}
