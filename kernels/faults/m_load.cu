// Load of the experts for the balancing loss: the sum of the gate probabilities that went to each of eight.
#include "h_harness.cuh"

constexpr int kExperts = 8;

__global__ void __launch_bounds__(256) expert_load(const int* __restrict__ expert, const float* __restrict__ prob, float* load, int n) {
    __shared__ float sums[kExperts];
    if (threadIdx.x < kExperts) sums[threadIdx.x] = 0;
    __syncthreads();
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&sums[expert[i]], prob[i]);
    __syncthreads();
    if (threadIdx.x < kExperts) atomicAdd(load + threadIdx.x, sums[threadIdx.x]);
}

// Eight sums in the registers of each thread.
__global__ void __launch_bounds__(256) expert_load_private(const int4* __restrict__ expert, const float4* __restrict__ prob, float* load,
                                                           int n) {
    __shared__ float sums[kExperts];
    if (threadIdx.x < kExperts) sums[threadIdx.x] = 0;
    __syncthreads();
    float own[kExperts] = {};
    int stride = gridDim.x * blockDim.x;
#pragma unroll 2
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        int4 e = expert[i];
        float4 p = prob[i];
#pragma unroll
        for (int k = 0; k < kExperts; ++k) {
            if (e.x == k) own[k] += p.x;
            if (e.y == k) own[k] += p.y;
            if (e.z == k) own[k] += p.z;
            if (e.w == k) own[k] += p.w;
        }
    }
#pragma unroll
    for (int k = 0; k < kExperts; ++k) {
        for (int s = 16; s; s >>= 1) own[k] += __shfl_xor_sync(0xffffffffu, own[k], s);
        if (threadIdx.x % 32 == 0) atomicAdd(&sums[k], own[k]);
    }
    __syncthreads();
    if (threadIdx.x < kExperts) atomicAdd(load + threadIdx.x, sums[threadIdx.x]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 33554432, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    int* expert = device_alloc<int>(n);
    float *prob = device_alloc<float>(n), *load = device_alloc<float>(kExperts);
    fill_uniform(expert, n, key, 0.0f, float(kExperts));
    fill_uniform(prob, n, key + 1, 0.0f, 1.0f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(load, 0, kExperts * sizeof(float)));
        if (fix)
            expert_load_private<<<1056, 256>>>(reinterpret_cast<int4*>(expert), reinterpret_cast<float4*>(prob), load, n / 4);
        else
            expert_load<<<1056, 256>>>(expert, prob, load, n);
    };
    launch_once(launch);
    std::vector<int> e = to_host(expert, n);
    std::vector<float> p = to_host(prob, n);
    std::vector<double> ref(kExperts);
    for (int i = 0; i < n; ++i) ref[e[i]] += p[i];
    double error = relative_error(to_host(load, kExperts), ref);
    return report("faults/m-load", median_us(launch, reps), 0, 8.0 * n, error, 1e-3);
}
