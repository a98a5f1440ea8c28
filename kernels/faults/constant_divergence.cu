// Bytes to floats through a table of 256 entries: in constant memory, or copied to shared memory.
#include "memory.cuh"

__constant__ float curve[256];

// The constant port delivers one address at a time: 32 lanes with 32 different bytes take that many turns.
__global__ void __launch_bounds__(256) decode_direct(const unsigned* __restrict__ in, float4* __restrict__ out) {
    unsigned first = blockIdx.x * 1024 + threadIdx.x, v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = in[first + k * 256];
#pragma unroll
    for (int k = 0; k < 4; ++k)
        out[first + k * 256] = make_float4(curve[v[k] & 255], curve[v[k] >> 8 & 255], curve[v[k] >> 16 & 255], curve[v[k] >> 24]);
}

__global__ void __launch_bounds__(256) decode_staged(const unsigned* __restrict__ in, float4* __restrict__ out) {
    __shared__ float local[256];
    unsigned first = blockIdx.x * 1024 + threadIdx.x, v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = in[first + k * 256];
    local[threadIdx.x] = curve[threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; ++k)
        out[first + k * 256] = make_float4(local[v[k] & 255], local[v[k] >> 8 & 255], local[v[k] >> 16 & 255], local[v[k] >> 24]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 4096);
    args.done();
    auto in = device_alloc<uint8_t>(n);
    auto out = device_alloc<float>(n);
    float values[256];
    for (int i = 0; i < 256; ++i) values[i] = float(std::pow(i / 255.0, 2.2));
    CHECK_CUDA(cudaMemcpyToSymbol(curve, values, sizeof values));
    fill_uniform(in, n, s, 0, 1);
    poison(out, 4 * n);
    auto words = reinterpret_cast<const unsigned*>(in);
    auto vectors = reinterpret_cast<float4*>(out);
    auto launch = [&] {
        if (fault) decode_direct<<<unsigned(n / 4096), 256>>>(words, vectors);
        else decode_staged<<<unsigned(n / 4096), 256>>>(words, vectors);
    };
    run_once(launch);
    auto h = to_host(in, n);
    double error = mismatch(out, n, [&](size_t i) { return values[h[i]]; });
    return report(fault ? "faults/decode-direct" : "faults/decode-staged", median_us(launch, r), 0, 5.0 * n, error, 0);
}
