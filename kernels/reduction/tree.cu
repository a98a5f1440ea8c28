// Sums of blocks of 256 floats by a tree in shared memory, one element a thread. --variant divergent keeps partners
// next to each other, so that few lanes of every warp work; --variant conflicts packs the working threads together, but
// their addresses lie a power of two apart.
// diagnose: expect divergence (divergent), bank-conflict (conflicts)
#include "check.cuh"

constexpr unsigned kBlock = 256;

__global__ void __launch_bounds__(kBlock) reduce_tree_divergent(const float* __restrict__ in, float* out, size_t n) {
    __shared__ float value[kBlock];
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * kBlock + tid;
    value[tid] = i < n ? in[i] : 0.f;
    __syncthreads();
#pragma unroll
    for (unsigned s = 1; s < kBlock; s *= 2) {
        if (tid % (2 * s) == 0) value[tid] += value[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = value[0];
}

__global__ void __launch_bounds__(kBlock) reduce_tree_conflicts(const float* __restrict__ in, float* out, size_t n) {
    __shared__ float value[kBlock];
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * kBlock + tid;
    value[tid] = i < n ? in[i] : 0.f;
    __syncthreads();
#pragma unroll
    for (unsigned s = 1; s < kBlock; s *= 2) {
        unsigned index = 2 * s * tid;
        if (index < kBlock) value[index] += value[index + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = value[0];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 26);
    std::string variant = args.get_str("variant", "divergent");
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(variant == "divergent" || variant == "conflicts", "--variant must be divergent or conflicts");

    // One result a block: adding them up with atomics would hide the tree behind the queue for one address.
    size_t blocks = (n + kBlock - 1) / kBlock;
    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(blocks);
    fill_uniform(in, n, key, -1, 1);
    poison(out, blocks * sizeof(float));

    auto launch = [&] {
        if (variant == "divergent")
            reduce_tree_divergent<<<unsigned(blocks), kBlock>>>(in, out, n);
        else
            reduce_tree_conflicts<<<unsigned(blocks), kBlock>>>(in, out, n);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    auto sums = segment_sums(in, n, kBlock);
    std::vector<double> ref;
    for (size_t s = 0; s < sums.size(); s += 2) ref.push_back(sums[s]);
    double error = relative_error(to_host(out, blocks), ref);
    std::string name = "reduction/tree-" + variant;
    return report(name.c_str(), median_us(launch, runs), 0, 4.0 * n, error, 1e-5);
}
