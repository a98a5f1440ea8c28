// Copies a vector of floats to a place with another alignment: no common 16-byte boundary.
#include "h_harness.cuh"

__global__ void shift_copy(const float* __restrict__ in, float* __restrict__ out, int n) {
    int i = blockIdx.x * (blockDim.x * 4) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k)
        if (i + k * int(blockDim.x) < n) out[i + k * blockDim.x] = in[i + k * blockDim.x];
}

struct Reference {
    const float* in;
    __device__ double operator()(size_t i) const { return in[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 60000000), from = int(args.get("from", 1)), to = int(args.get("to", 3));
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(from >= 0 && from < 64 && to >= 0 && to < 64, "--from and --to must be between 0 and 63");
    float *in = device_alloc<float>(size_t(n) + 64), *out = device_alloc<float>(size_t(n) + 64);
    fill_uniform(in, size_t(n) + 64, key, -1.0f, 1.0f);
    poison(out, (size_t(n) + 64) * 4);
    auto launch = [&] { shift_copy<<<blocks_for(n, 256 * 4), 256>>>(in + from, out + to, n); };
    launch_once(launch);
    double error = device_error(out + to, n, Reference{in + from});
    double us = median_us(launch, reps);
    return report("faults/h-shift", us, 0, 8.0 * n, error, 0);
}
