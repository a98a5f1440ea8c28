// Sum of n floats at the rate of HBM: eight loads of 16 bytes in flight a thread, one wave of blocks that stride over the
// input. Each block leaves its sum and the last to end adds them up in order: the same input gives the same bits.
// diagnose: expect hbm-bandwidth
#include "check.cuh"
#include "sums.cuh"

constexpr int kBlock = 512, kLoads = 8;

__global__ void __launch_bounds__(kBlock, 2)
    reduce_vectorised(const float4* __restrict__ in, float* partial, unsigned* ended, float* out, size_t vectors) {
    __shared__ float scratch[2][kBlock / 32];
    __shared__ bool last;
    size_t stride = size_t(gridDim.x) * kBlock, i = size_t(blockIdx.x) * kBlock + threadIdx.x;
    float sums[kLoads] = {};
    for (; i + (kLoads - 1) * stride < vectors; i += kLoads * stride) {
        float4 v[kLoads];
#pragma unroll
        for (int j = 0; j < kLoads; ++j) v[j] = __ldcs(in + i + j * stride);
        loaded(v);
#pragma unroll
        for (int j = 0; j < kLoads; ++j) sums[j] += sum4(v[j]);
    }
    for (; i < vectors; i += stride) sums[0] += sum4(__ldcs(in + i));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += sums[j];
    sum = block_reduce<kBlock>(sum, Add(), scratch[0]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ended, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kBlock) sum += __ldcg(partial + b);
    sum = block_reduce<kBlock>(sum, Add(), scratch[1]);
    if (threadIdx.x == 0) *out = sum, *ended = 0;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 28);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();

    unsigned blocks = resident_blocks(reduce_vectorised, kBlock);
    float* in = device_alloc<float>(n);
    float* partial = device_alloc<float>(blocks);
    unsigned* ended = device_alloc<unsigned>(1);
    float* out = device_alloc<float>(1);
    fill_uniform(in, n, key, -1, 1);
    CHECK_CUDA(cudaMemset(ended, 0, sizeof(unsigned)));
    poison(out, sizeof(float));
    auto launch = [&] {
        reduce_vectorised<<<blocks, kBlock>>>(reinterpret_cast<float4*>(in), partial, ended, out, n / 4);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    return report("reduction/vectorised", median_us(launch, runs), 0, 4.0 * n, error, 1e-5);
}
