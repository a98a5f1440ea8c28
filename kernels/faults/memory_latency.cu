// Sum of n floats: few threads with one load in flight each, or more threads with eight.
#include "memory.cuh"

// The add needs the load, and the next load waits for the add: 2 KB in flight an SM.
__global__ void __launch_bounds__(128) sum_steps(const float4* __restrict__ in, float* __restrict__ out, size_t n4) {
    size_t thread = size_t(blockIdx.x) * blockDim.x + threadIdx.x, stride = size_t(gridDim.x) * blockDim.x;
    float total = 0;
#pragma unroll 1
    for (size_t i = thread; i < n4; i += stride) {
        float4 v = in[i];
        total += (v.x + v.y) + (v.z + v.w);
    }
    out[thread] = total;
}

__global__ void __launch_bounds__(256) sum_batches(const float4* __restrict__ in, float* __restrict__ out, size_t n4) {
    size_t thread = size_t(blockIdx.x) * blockDim.x + threadIdx.x, stride = size_t(gridDim.x) * blockDim.x;
    float total = 0;
    size_t i = thread;
    for (; i + 7 * stride < n4; i += 8 * stride) {
        float4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = in[i + k * stride];
#pragma unroll
        for (int k = 0; k < 8; ++k) total += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    for (; i < n4; i += stride) total += (in[i].x + in[i].y) + (in[i].z + in[i].w);
    out[thread] = total;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 128 << 20, 4);
    args.done();
    unsigned blocks = sm_count() * (fault ? 1 : 4), threads = fault ? 128 : 256;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(blocks * threads);
    fill_uniform(in, n, s, 0, 1);
    poison(out, blocks * threads * 4);
    auto vectors = reinterpret_cast<const float4*>(in);
    auto launch = [&] {
        if (fault) sum_steps<<<blocks, threads>>>(vectors, out, n / 4);
        else sum_batches<<<blocks, threads>>>(vectors, out, n / 4);
    };
    run_once(launch);
    double error = sum_error(out, blocks * threads, host_sum(in, n));
    return report(fault ? "faults/sum-steps" : "faults/sum-batches", median_us(launch, r), 0, 4.0 * n, error, 1e-5);
}
