// Sum of two vectors of a thousand elements: the launch costs more than the work.
#include "memory.cuh"

__global__ void add_vectors(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
                            unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string name = args.get_str("name", "faults/add-short");
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 1024);
    args.done();
    auto a = device_alloc<float>(n), b = device_alloc<float>(n), out = device_alloc<float>(n);
    fill_uniform(a, n, s, -1, 1);
    fill_uniform(b, n, s + 1, -1, 1);
    poison(out, 4 * n);
    auto launch = [&] { add_vectors<<<unsigned((n + 255) / 256), 256>>>(a, b, out, unsigned(n)); };
    run_once(launch);
    auto x = to_host(a, n), y = to_host(b, n);
    double error = mismatch(out, n, [&](size_t i) { return x[i] + y[i]; });
    return report(name.c_str(), median_us(launch, r), 0, 12.0 * n, error, 0);
}
