// Sums of a table's recurrences; the table is brought in once a cluster, a share a block, and read from the neighbours' shared
// memory. 120 KB a block, so one block an SM: clusters of ten leave the rest of each GPC empty, clusters of two fill it.
#include "pair.cuh"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
constexpr int kTable = 1920;  // divides by any cluster size used here

__device__ __forceinline__ void recur(const float* table, const float* x, float* out, int steps) {
    extern __shared__ __align__(16) float whole[];  // kTable of the whole table, then this block's share
    cg::cluster_group cluster = cg::this_cluster();
    int size = cluster.num_blocks(), share = kTable / size;
    float* own = whole + kTable;
    for (int i = threadIdx.x; i < share; i += blockDim.x) own[i] = table[cluster.block_rank() * share + i];
    cluster.sync();
    for (int i = threadIdx.x; i < kTable; i += blockDim.x) whole[i] = cluster.map_shared_rank(own, i / share)[i % share];
    cluster.sync();  // nobody leaves while its shared memory is read
    // Four values a thread, so that a coefficient read serves four multiply-adds.
    int i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    float v[4], r[4] = {};
    for (int e = 0; e < 4; ++e) v[e] = x[i + e * stride];
    for (int s = 0; s < steps; ++s)
#pragma unroll 4
        for (int t = 0; t < kTable; t += 4) {
            float4 q = *reinterpret_cast<const float4*>(whole + t);
#pragma unroll
            for (int e = 0; e < 4; ++e) r[e] = fmaf(fmaf(fmaf(fmaf(r[e], v[e], q.x), v[e], q.y), v[e], q.z), v[e], q.w);
        }
    for (int e = 0; e < 4; ++e) out[i + e * stride] = r[e];
}
__global__ void __launch_bounds__(512) recur_tens(const float* table, const float* x, float* out, int steps) { recur(table, x, out, steps); }
__global__ void __launch_bounds__(512) recur_twos(const float* table, const float* x, float* out, int steps) { recur(table, x, out, steps); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int cluster = int(args.get("cluster", fault ? 10 : 2)), blocks = int(args.get("blocks", 2640)), steps = int(args.get("steps", 2)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(cluster >= 1 && cluster <= 16 && kTable % cluster == 0 && blocks > 0 && blocks % cluster == 0 && blocks <= 100000 && steps > 0,
            "--cluster must divide 1920 and --blocks and be at most 16");
    int n = blocks * 2048;
    float *table = device_alloc<float>(kTable), *x = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(table, kTable, key, -1.f, 1.f);
    fill_uniform(x, n, key + 1, -0.95f, 0.95f);
    auto ht = to_host(table, kTable), hx = to_host(x, n);
    auto reference = [&](size_t i) {
        double r = 0;
        for (int s = 0; s < steps; ++s)
            for (int t = 0; t < kTable; ++t) r = r * hx[i] + ht[t];
        return r;
    };
    auto kernel = fault ? recur_tens : recur_twos;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks), config.blockDim = dim3(512), config.dynamicSmemBytes = 120 * 1024;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    allow_smem(kernel, config.dynamicSmemBytes);
    if (cluster > 8) CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    auto launch = [&] { CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, (const float*)table, (const float*)x, out, steps)); };
    return run_checked(fault ? "faults/recur-tens" : "faults/recur-twos", reps, launch, out, n, reference, 2.0 * kTable * steps * n, 8.0 * n, 1e-4, 1024);
}
