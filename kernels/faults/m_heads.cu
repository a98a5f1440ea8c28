// Normalises each head of 64 floats to unit root mean square. A block stages 128 heads in shared memory; then each thread sums the
// squares of one head. Heads lie 64 + `pad` floats apart.
#include "h_harness.cuh"

constexpr int kHeads = 128, kDim = 64;

__global__ void __launch_bounds__(kHeads) head_norm(const float* __restrict__ x, float* __restrict__ y, int pad) {
    extern __shared__ float tile[];
    __shared__ float scale[kHeads];
    const float* from = x + size_t(blockIdx.x) * kHeads * kDim;
    float* to = y + size_t(blockIdx.x) * kHeads * kDim;
    int stride = kDim + pad;
#pragma unroll 16
    for (int i = threadIdx.x; i < kHeads * kDim; i += kHeads) tile[i / kDim * stride + i % kDim] = from[i];
    __syncthreads();
    float sum = 0;
#pragma unroll 16
    for (int d = 0; d < kDim; ++d) {
        float v = tile[threadIdx.x * stride + d];
        sum += v * v;
    }
    scale[threadIdx.x] = rsqrtf(sum / float(kDim) + 1e-6f);
    __syncthreads();
#pragma unroll 16
    for (int i = threadIdx.x; i < kHeads * kDim; i += kHeads) to[i] = tile[i / kDim * stride + i % kDim] * scale[i / kDim];
}

struct Reference {
    const float* x;
    __device__ double operator()(size_t i) const {
        const float* head = x + i / kDim * kDim;
        double sum = 0;
        for (int d = 0; d < kDim; ++d) sum += double(head[d]) * double(head[d]);
        return x[i] / sqrt(sum / kDim + 1e-6);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int heads = positive(args, "heads", 1048576, 1 << 23);
    int pad = int(args.get("pad", 0));
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(heads % kHeads == 0 && pad >= 0 && pad <= 32, "--heads must be a multiple of 128, --pad 0 to 32");
    size_t n = size_t(heads) * kDim;
    float *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    poison(y, n * sizeof(float));
    int shared = kHeads * (kDim + pad) * int(sizeof(float));
    CHECK_CUDA(cudaFuncSetAttribute(head_norm, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    auto launch = [&] { head_norm<<<heads / kHeads, kHeads, shared>>>(x, y, pad); };
    launch_once(launch);
    double error = device_error(y, n, Reference{x});
    return report("faults/m-heads", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
