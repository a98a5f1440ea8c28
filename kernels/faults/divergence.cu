// Each item runs one of eight recurrences, by its kind: kinds mixed within a warp, or items visited kind by kind.
#include "memory.cuh"

constexpr int KINDS = 8, STEPS = 1024;

// Different instructions for each kind, all contracting, so single and double precision agree.
template <int KIND, class T>
__device__ T step(T x, T s) {
    if constexpr (KIND == 0) return fma(x, T(0.75), s);
    if constexpr (KIND == 1) return fma(x * x, T(0.25), s);
    if constexpr (KIND == 2) return fma(x * x, x * T(0.125), s);
    if constexpr (KIND == 3) return fma(fabs(x - s), T(0.5), T(0.125));
    if constexpr (KIND == 4) return fma(s - x, s - x, T(0.25)) * T(0.25);
    if constexpr (KIND == 5) return fma(x, fma(x, T(0.25), T(0.125)), s);
    if constexpr (KIND == 6) return fma(-x, x * T(0.25), s) + T(0.0625);
    return fmin(fma(x, T(0.625), s), T(0.875));
}

template <int KIND, class T>
__device__ T run(T x, T s) {
#pragma unroll 16
    for (int k = 0; k < STEPS; ++k) x = step<KIND>(x, s);
    return x;
}

template <class T>
__device__ T evolve(int kind, T x, T s) {
    switch (kind) {
        case 0: return run<0>(x, s);
        case 1: return run<1>(x, s);
        case 2: return run<2>(x, s);
        case 3: return run<3>(x, s);
        case 4: return run<4>(x, s);
        case 5: return run<5>(x, s);
        case 6: return run<6>(x, s);
        default: return run<7>(x, s);
    }
}

__global__ void __launch_bounds__(256) evolve_in_place(const uint8_t* __restrict__ kind, const float* __restrict__ s,
                                                       float* __restrict__ out, const unsigned*, unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = evolve(kind[i] % KINDS, s[i], s[i]);
}

__global__ void __launch_bounds__(256) evolve_by_list(const uint8_t* __restrict__ kind, const float* __restrict__ s,
                                                      float* __restrict__ out, const unsigned* __restrict__ list,
                                                      unsigned n) {
    unsigned at = blockIdx.x * 256 + threadIdx.x;
    if (at >= n) return;
    unsigned i = list[at];
    out[i] = evolve(kind[i] % KINDS, s[i], s[i]);
}

__global__ void evolve_reference(const uint8_t* kind, const float* s, double* out, unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = evolve(kind[i] % KINDS, double(s[i]), double(s[i]));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 4 << 20);
    args.done();
    auto kind = device_alloc<uint8_t>(n);
    auto start = device_alloc<float>(n), out = device_alloc<float>(n);
    auto ref = device_alloc<double>(n);
    auto list = device_alloc<unsigned>(n);
    fill_uniform(kind, n, s, 0, 1);
    fill_uniform(start, n, s + 1, 0, 0.25f);
    std::vector<unsigned> order;
    auto kinds = to_host(kind, n);
    for (int k = 0; k < KINDS; ++k)
        for (size_t i = 0; i < n; ++i)
            if (kinds[i] % KINDS == k) order.push_back(unsigned(i));
    CHECK_CUDA(cudaMemcpy(list, order.data(), n * 4, cudaMemcpyHostToDevice));
    poison(out, 4 * n);
    poison(ref, 8 * n);
    unsigned blocks = unsigned((n + 255) / 256);
    auto kernel = fault ? evolve_in_place : evolve_by_list;
    auto launch = [&] { kernel<<<blocks, 256>>>(kind, start, out, list, unsigned(n)); };
    run_once(launch);
    run_once([&] { evolve_reference<<<blocks, 256>>>(kind, start, ref, unsigned(n)); });
    double error = relative_error(to_host(out, n), to_host(ref, n));
    return report(fault ? "faults/evolve-in-place" : "faults/evolve-by-list", median_us(launch, r), 3.0 * STEPS * n,
                  9.0 * n, error, 1e-5);
}
