// Companded bytes to floats through a table of 256 entries.
#include "h_harness.cuh"

__constant__ float decode_table[256];

__global__ void __launch_bounds__(256) decode(const unsigned* __restrict__ in, float4* __restrict__ out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned q = in[i];
        out[i] = make_float4(decode_table[q & 255], decode_table[(q >> 8) & 255], decode_table[(q >> 16) & 255],
                             decode_table[q >> 24]);
    }
}

__global__ void __launch_bounds__(256) decode_shared(const unsigned* __restrict__ in, const float* __restrict__ values,
                                                     float4* __restrict__ out, int n) {
    __shared__ float table[256];
    table[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
#pragma unroll 2
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned q = in[i];
        out[i] = make_float4(table[q & 255], table[(q >> 8) & 255], table[(q >> 16) & 255], table[q >> 24]);
    }
}

struct Reference {
    const uint8_t* in;
    const float* values;
    __device__ double operator()(size_t i) const { return values[in[i]]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 56000000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    uint8_t* in = device_alloc<uint8_t>(n);
    float *out = device_alloc<float>(n), *values = device_alloc<float>(256);
    fill_uniform(in, n, key, 0.0f, 256.0f);
    fill_uniform(values, 256, key + 1, -1.0f, 1.0f);
    CHECK_CUDA(cudaMemcpyToSymbol(decode_table, values, 256 * 4, 0, cudaMemcpyDeviceToDevice));
    poison(out, size_t(n) * 4);
    auto launch = [&] {
        auto words = reinterpret_cast<unsigned*>(in);
        auto to = reinterpret_cast<float4*>(out);
        if (fix) decode_shared<<<132 * 8, 256>>>(words, values, to, n / 4);
        else decode<<<132 * 8, 256>>>(words, to, n / 4);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, values});
    double us = median_us(launch, reps);
    return report("faults/h-decode", us, 0, 5.0 * n, error, 0);
}
