// Sum of n floats in clusters: blocks of a cluster send their sums to the shared memory of block 0 (distributed shared
// memory), which makes one atomic for all. The loads are those of the vectorised step, so the time is HBM's.
// diagnose: expect hbm-bandwidth
#include <cooperative_groups.h>

#include "check.cuh"
#include "sums.cuh"

namespace cg = cooperative_groups;

constexpr int kBlock = 512, kLoads = 8, kMaxCluster = 8;

__global__ void __launch_bounds__(kBlock, 2) reduce_cluster(const float4* __restrict__ in, float* out, size_t vectors) {
    __shared__ float scratch[kBlock / 32], sent[kMaxCluster];
    cg::cluster_group cluster = cg::this_cluster();
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
    sum = block_reduce<kBlock>(sum, Add(), scratch);
    cluster.sync();  // a block may write to another only once that one has started
    if (threadIdx.x == 0) *cluster.map_shared_rank(&sent[cluster.block_rank()], 0) = sum;
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        sum = 0;
        for (unsigned b = 0; b < cluster.num_blocks(); ++b) sum += sent[b];
        atomicAdd(out, sum);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 28);
    long long size = args.get("cluster", 4);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(size == 1 || size == 2 || size == 4 || size == 8, "--cluster must be 1, 2, 4 or 8");

    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(1);
    fill_uniform(in, n, key, -1, 1);
    CHECK_CUDA(cudaMemset(out, 0, sizeof(float)));

    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(size), attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(size)), config.blockDim = dim3(kBlock);
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveClusters(&clusters, reduce_cluster, &config));
    require(clusters > 0, "this GPU cannot run clusters of that size");
    config.gridDim = dim3(unsigned(clusters * size));
    auto launch = [&] {
        CHECK_CUDA(cudaLaunchKernelEx(&config, reduce_cluster, reinterpret_cast<const float4*>(in), out, n / 4));
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    return report("reduction/cluster", median_us(launch, runs), 0, 4.0 * n, error, 1e-5);
}
