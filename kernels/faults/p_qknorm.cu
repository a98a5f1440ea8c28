// Root-mean-square norm of every head of queries and keys (128 channels, fp32), a warp a head, with the weight of query or key.
// --warps: warps a block.
#include "p_harness.cuh"

constexpr int kDim = 128;

__global__ void __launch_bounds__(256) head_rms(const float4* __restrict__ in, float4* __restrict__ out, const float4* __restrict__ weights,
                                                int query_heads, int heads, float epsilon) {
    unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
    int head = int(row % unsigned(heads)), lane = threadIdx.x;
    float4 v = in[size_t(row) * 32 + lane], w = weights[(head < query_heads ? 0 : 32) + lane];
    float square = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
#pragma unroll
    for (int s = 16; s; s >>= 1) square += __shfl_xor_sync(0xffffffffu, square, s);
    float scale = rsqrtf(square * (1.0f / kDim) + epsilon);
    out[size_t(row) * 32 + lane] = make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

struct Reference {
    const float *in, *weights;
    int query_heads, heads;
    float epsilon;
    __device__ double operator()(size_t i) const {
        size_t row = i / kDim;
        double square = 0;
        for (int k = 0; k < kDim; ++k) square += double(in[row * kDim + k]) * in[row * kDim + k];
        return in[i] / sqrt(square / kDim + epsilon) * weights[(int(row % heads) < query_heads ? 0 : kDim) + i % kDim];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int warps = positive(args, "warps", 1, 8), tokens = positive(args, "tokens", 32768, 1 << 17);
    int query_heads = positive(args, "query_heads", 32, 128), key_heads = positive(args, "key_heads", 8, 128);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int heads = query_heads + key_heads;
    size_t rows = size_t(tokens) * heads, n = rows * kDim;
    require(rows % warps == 0, "--tokens times the heads must be a multiple of --warps");
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n), *weights = device_alloc<float>(2 * kDim);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    fill_uniform(weights, size_t(2 * kDim), key + 1, 0.5f, 1.5f);
    poison(out, n * 4);
    auto launch = [&] {
        head_rms<<<unsigned(rows / warps), dim3(32, warps)>>>(reinterpret_cast<float4*>(in), reinterpret_cast<float4*>(out),
                                                              reinterpret_cast<float4*>(weights), query_heads, heads, 1e-6f);
    };
    launch_once(launch);
    double error = sample_error(out, n, Reference{in, weights, query_heads, heads, 1e-6f}, 1 << 20);
    return report("faults/p-qknorm", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
