// Embedding look-up: rows of 256 floats of a table, by token.
#include "h_harness.cuh"

constexpr int kVectors = 64;  // float4 a row

__global__ void embed(const float4* __restrict__ table, const int* __restrict__ token, float4* __restrict__ out, int n) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= n) return;
    const float4* p = table + size_t(token[row]) * kVectors;
    float4 a = p[lane], b = p[lane + 32];
    out[size_t(row) * kVectors + lane] = a;
    out[size_t(row) * kVectors + lane + 32] = b;
}

struct Reference {
    const float* table;
    const int* token;
    __device__ double operator()(size_t i) const {
        return table[size_t(token[i / (kVectors * 4)]) * (kVectors * 4) + i % (kVectors * 4)];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int vocabulary = positive(args, "vocabulary", 400000, 4000000), tokens = positive(args, "tokens", 120000, 4000000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(tokens) * kVectors * 4, rows = size_t(vocabulary) * kVectors * 4;
    float *table = device_alloc<float>(rows), *out = device_alloc<float>(n);
    int* token = device_alloc<int>(tokens);
    fill_uniform(table, rows, key, -1.0f, 1.0f);
    fill_uniform(token, tokens, key + 1, 0.0f, float(vocabulary));
    poison(out, n * sizeof(float));
    auto launch = [&] {
        embed<<<blocks_for(tokens, 5), 160>>>(reinterpret_cast<float4*>(table), token, reinterpret_cast<float4*>(out), tokens);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{table, token});
    double us = median_us(launch, reps);
    return report("faults/h-embedding", us, 0, 8.0 * double(n), error, 0);
}
