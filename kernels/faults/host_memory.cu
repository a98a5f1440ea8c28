// Sum of n floats that lie in pinned host memory, or in device memory: the same kernel, told only by the address.
#include "memory.cuh"

__global__ void __launch_bounds__(256) sum_vectors(const float4* __restrict__ in, float* __restrict__ out, unsigned n4) {
    unsigned thread = blockIdx.x * 256 + threadIdx.x, stride = gridDim.x * 256;
    float total = 0;
    unsigned i = thread;
    for (; i + 3 * stride < n4; i += 4 * stride) {
        float4 v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = in[i + k * stride];
#pragma unroll
        for (int k = 0; k < 4; ++k) total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    for (; i < n4; i += stride) total += (in[i].x + in[i].y) + (in[i].z + in[i].w);
    out[thread] = total;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 4);
    args.done();
    unsigned blocks = sm_count() * 8;
    auto device = device_alloc<float>(n), out = device_alloc<float>(blocks * 256);
    fill_uniform(device, n, s, 0, 1);
    poison(out, blocks * 256 * 4);
    const float* in = device;
    if (fault) {
        void *host = nullptr, *mapped = nullptr;
        CHECK_CUDA(cudaHostAlloc(&host, n * 4, cudaHostAllocMapped));
        CHECK_CUDA(cudaMemcpy(host, device, n * 4, cudaMemcpyDeviceToHost));
        CHECK_CUDA(cudaHostGetDevicePointer(&mapped, host, 0));
        in = static_cast<const float*>(mapped);
    }
    auto launch = [&] { sum_vectors<<<blocks, 256>>>(reinterpret_cast<const float4*>(in), out, unsigned(n / 4)); };
    run_once(launch);
    double error = sum_error(out, blocks * 256, host_sum(device, n));
    return report(fault ? "faults/sum-host" : "faults/sum-device", median_us(launch, r), 0, 4.0 * n, error, 1e-5);
}
