// Gradient of a token-type embedding (two rows of 128): table[type[token]] += grad[token].
#include "h_harness.cuh"

constexpr int kDim = 128;

__global__ void __launch_bounds__(256) types_backward(const float* __restrict__ grad, const int* __restrict__ type, float* table,
                                                      size_t n) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(table + type[i / kDim] * kDim + i % kDim, grad[i]);
}

// A warp takes whole tokens, four columns a lane; sums leave the registers once a block.
__global__ void __launch_bounds__(256) types_backward_slab(const float4* __restrict__ grad, const int* __restrict__ type, float* table,
                                                           int tokens) {
    __shared__ float sums[2 * kDim];
    sums[threadIdx.x] = 0;
    __syncthreads();
    int lane = threadIdx.x % 32, stride = gridDim.x * 8;
    float4 zero = {}, one = {};
#pragma unroll 8
    for (int t = blockIdx.x * 8 + threadIdx.x / 32; t < tokens; t += stride) {
        float4 g = grad[size_t(t) * (kDim / 4) + lane];
        float w = type[t] ? 1.0f : 0.0f, u = 1.0f - w;
        one = make_float4(one.x + w * g.x, one.y + w * g.y, one.z + w * g.z, one.w + w * g.w);
        zero = make_float4(zero.x + u * g.x, zero.y + u * g.y, zero.z + u * g.z, zero.w + u * g.w);
    }
    const float values[8] = {zero.x, zero.y, zero.z, zero.w, one.x, one.y, one.z, one.w};
    for (int e = 0; e < 8; ++e) atomicAdd(&sums[e / 4 * kDim + lane * 4 + e % 4], values[e]);
    __syncthreads();
    atomicAdd(table + threadIdx.x, sums[threadIdx.x]);
}

__global__ void reference_types(const float* grad, const int* type, double* table, int tokens) {
    double sum[2] = {};
    for (int t = blockIdx.x; t < tokens; t += gridDim.x) sum[type[t]] += double(grad[size_t(t) * kDim + threadIdx.x]);
    atomicAdd(table + threadIdx.x, sum[0]);
    atomicAdd(table + kDim + threadIdx.x, sum[1]);
}

struct Reference {
    const double* table;
    __device__ double operator()(size_t i) const { return table[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 524288, 1 << 23);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(tokens) * kDim;
    float *grad = device_alloc<float>(n), *table = device_alloc<float>(2 * kDim);
    int* type = device_alloc<int>(tokens);
    double* ref = device_alloc<double>(2 * kDim);
    fill_uniform(grad, n, key, -0.5f, 1.0f);
    fill_uniform(type, tokens, key + 1, 0.0f, 2.0f);
    CHECK_CUDA(cudaMemset(ref, 0, 2 * kDim * sizeof(double)));
    reference_types<<<1024, kDim>>>(grad, type, ref, tokens);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(table, 0, 2 * kDim * sizeof(float)));
        if (fix) types_backward_slab<<<1056, 256>>>(reinterpret_cast<float4*>(grad), type, table, tokens);
        else types_backward<<<blocks_for(n, 256), 256>>>(grad, type, table, n);
    };
    launch_once(launch);
    double error = device_error(table, 2 * kDim, Reference{ref});
    return report("faults/m-types", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-3);
}
