// Healthy streams, 16 bytes a lane: read, copy, fill.
#include "memory.cuh"

__global__ void __launch_bounds__(256) stream_read(const float4* __restrict__ in, float* __restrict__ out) {
    size_t first = size_t(blockIdx.x) * 2048 + threadIdx.x;
    float4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = in[first + k * 256];
    float total = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    if (threadIdx.x % 32 == 0) out[blockIdx.x * 8 + threadIdx.x / 32] = total;  // a sum for every 4 KB read
}

__global__ void __launch_bounds__(256) stream_copy(const float4* __restrict__ in, float4* __restrict__ out) {
    size_t first = size_t(blockIdx.x) * 1024 + threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = in[first + k * 256];
#pragma unroll
    for (int k = 0; k < 4; ++k) out[first + k * 256] = v[k];
}

__global__ void __launch_bounds__(256) stream_fill(float4* __restrict__ out, float value) {
    size_t first = size_t(blockIdx.x) * 1024 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) out[first + k * 256] = make_float4(value, value, value, value);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string variant = args.get_str("variant", "read");
    require(variant == "read" || variant == "copy" || variant == "fill", "--variant is read, copy or fill, got " + variant);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 256 << 20, 8192);
    args.done();
    bool read = variant == "read", copy = variant == "copy";
    size_t outputs = read ? n / 1024 : n;
    auto in = read || copy ? device_alloc<float>(n) : nullptr;
    auto out = device_alloc<float>(outputs);
    if (in) fill_uniform(in, n, s, 0, 1);
    poison(out, 4 * outputs);
    auto from = reinterpret_cast<const float4*>(in);
    auto to = reinterpret_cast<float4*>(out);
    const float value = 0.25f + float(s % 1000);
    auto launch = [&] {
        if (read) stream_read<<<unsigned(n / 8192), 256>>>(from, out);
        else if (copy) stream_copy<<<unsigned(n / 4096), 256>>>(from, to);
        else stream_fill<<<unsigned(n / 4096), 256>>>(to, value);
    };
    run_once(launch);
    double error;
    if (read) error = sum_error(out, outputs, host_sum(in, n));
    else if (copy) {
        auto h = to_host(in, n);
        error = mismatch(out, n, [&](size_t i) { return h[i]; });
    } else error = mismatch(out, n, [&](size_t) { return value; });
    return report(("faults/stream-" + variant).c_str(), median_us(launch, r), 0, (copy ? 8.0 : 4.0) * n, error,
                  read ? 1e-5 : 0);
}
