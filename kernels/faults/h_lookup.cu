// out[i] = table[index[i]]: one float of a large table an element.
#include "h_harness.cuh"

__global__ void lookup(const float* __restrict__ table, const int4* __restrict__ index, float4* __restrict__ out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int4 at = index[i];
    out[i] = make_float4(table[at.x], table[at.y], table[at.z], table[at.w]);
}

struct Reference {
    const float* table;
    const int* index;
    __device__ double operator()(size_t i) const { return table[index[i]]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int entries = positive(args, "entries", 134217728), n = positive(args, "n", 16777216, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *table = device_alloc<float>(entries), *out = device_alloc<float>(n);
    int* index = device_alloc<int>(n);
    fill_uniform(table, entries, key, -1.0f, 1.0f);
    fill_uniform(index, n, key + 1, 0.0f, float(entries - entries / 16777216));
    poison(out, size_t(n) * sizeof(float));
    auto launch = [&] {
        lookup<<<blocks_for(n / 4, 320), 320>>>(table, reinterpret_cast<int4*>(index), reinterpret_cast<float4*>(out), n / 4);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{table, index});
    double us = median_us(launch, reps);
    return report("faults/h-lookup", us, 0, 12.0 * double(n), error, 0);
}
