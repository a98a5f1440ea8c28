// Sum of n floats at the rate of HBM: 16-byte loads, four in flight a thread, shuffles, one atomic a block.
// diagnose: expect hbm-bandwidth
#include "check.cuh"

constexpr int kBlock = 512;

__device__ inline float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__device__ inline float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }

__global__ void __launch_bounds__(kBlock) reduce_shuffle(const float4* __restrict__ in, float* out, size_t vectors) {
    __shared__ float partial[kBlock / 32];
    size_t stride = size_t(gridDim.x) * kBlock;
    size_t i = size_t(blockIdx.x) * kBlock + threadIdx.x;
    float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (; i + 3 * stride < vectors; i += 4 * stride) {
        float4 v0 = in[i], v1 = in[i + stride], v2 = in[i + 2 * stride], v3 = in[i + 3 * stride];
        sum0 += sum4(v0), sum1 += sum4(v1), sum2 += sum4(v2), sum3 += sum4(v3);
    }
    for (; i < vectors; i += stride) sum0 += sum4(in[i]);
    float sum = warp_sum((sum0 + sum1) + (sum2 + sum3));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < kBlock / 32 ? partial[threadIdx.x] : 0.f);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
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

    int device = 0, sms = 0, resident = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, reduce_shuffle, kBlock, 0));
    auto launch = [&] { reduce_shuffle<<<sms * resident, kBlock>>>(reinterpret_cast<float4*>(in), out, n / 4); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    return report("reduction/shuffle", median_us(launch, runs), 0, 4.0 * n, error, 1e-4);
}
