// Sum of n floats: a warp adds up by shuffles and a block makes one atomic, but every thread has one load of 4 bytes in
// flight, and the rate of memory is requests in flight over latency.
// diagnose: expect memory-latency
#include "check.cuh"
#include "sums.cuh"

constexpr int kBlock = 256;

__global__ void __launch_bounds__(kBlock) reduce_scalar(const float* __restrict__ in, float* out, size_t n) {
    __shared__ float scratch[kBlock / 32];
    size_t stride = size_t(gridDim.x) * kBlock;
    float sum = 0;
#pragma unroll 1
    for (size_t i = size_t(blockIdx.x) * kBlock + threadIdx.x; i < n; i += stride) sum += in[i];
    sum = block_reduce<kBlock>(sum, Add(), scratch);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 28);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();

    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(1);
    fill_uniform(in, n, key, -1, 1);
    CHECK_CUDA(cudaMemset(out, 0, sizeof(float)));
    unsigned blocks = resident_blocks(reduce_scalar, kBlock);
    auto launch = [&] { reduce_scalar<<<blocks, kBlock>>>(in, out, n); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    return report("reduction/scalar", median_us(launch, runs), 0, 4.0 * n, error, 1e-4);
}
