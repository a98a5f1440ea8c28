// RMS norm, GELU and dropout of very wide rows (20480 floats) that a cluster holds in the shared memory of its blocks: each keeps a slice,
// the sums of squares meet through distributed shared memory. --cluster: blocks a row; 10 of a slice of 2048, or 5 of 4096 with half the rows.
#include <cooperative_groups.h>

#include "p_harness.cuh"

namespace cg = cooperative_groups;

constexpr int kWidth = 20480, kSlots = 40960;  // floats a block keeps: one block a multiprocessor

__host__ __device__ inline uint32_t dropout_bits(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x = (x ^ (x >> 16)) * 0x27d4eb2fu;
    x = (x ^ (x >> 15)) * 0x165667b1u;
    return x ^ (x >> 16);
}

__device__ __forceinline__ float finish(float v, float scale, float weight, uint32_t index) {
    float z = v * scale * weight;
    z = 0.5f * z * (1.0f + erff(z * 0.70710678f));
    return dropout_bits(index) < 0x1999999au ? 0.0f : z * (1.0f / 0.9f);  // one in ten
}

// A warp takes whole slices of rows: two of 2048, or one of 4096.
__global__ void __launch_bounds__(320, 1) sharded_norm(const float4* __restrict__ x, const float4* __restrict__ weight, float4* __restrict__ out,
                                                       float epsilon) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ float squares[20];
    float4* tile = reinterpret_cast<float4*>(raw);
    cg::cluster_group cluster = cg::this_cluster();
    const int blocks = int(cluster.num_blocks()), rank = int(cluster.block_rank()), quads = kWidth / 4 / blocks, rows = kSlots / 4 / quads;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t first = size_t(blockIdx.x / blocks) * rows, row_quads = kWidth / 4;
    for (int r = warp; r < rows; r += 10) {
        const float4* from = x + (first + r) * row_quads + rank * quads;
        float sum = 0;
#pragma unroll 8
        for (int i = lane; i < quads; i += 32) {
            float4 v = from[i];
            tile[r * quads + i] = v;
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
#pragma unroll
        for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        if (lane == 0) squares[r] = sum;
    }
    cluster.sync();
    for (int r = warp; r < rows; r += 10) {
        float total = lane < blocks ? *cluster.map_shared_rank(&squares[r], lane) : 0.0f;
#pragma unroll
        for (int s = 16; s; s >>= 1) total += __shfl_xor_sync(0xffffffffu, total, s);
        const float scale = rsqrtf(total * (1.0f / kWidth) + epsilon);
        const size_t at = (first + r) * row_quads + rank * quads;
#pragma unroll 2
        for (int i = lane; i < quads; i += 32) {
            float4 v = tile[r * quads + i], w = weight[rank * quads + i];
            uint32_t index = uint32_t(at + i) * 4;
            out[at + i] = make_float4(finish(v.x, scale, w.x, index), finish(v.y, scale, w.y, index + 1), finish(v.z, scale, w.z, index + 2),
                                      finish(v.w, scale, w.w, index + 3));
        }
    }
    cluster.sync();  // nobody leaves while its sums are read
}

struct Reference {
    const float *x, *weight;
    float epsilon;
    __device__ double operator()(size_t i) const {
        const float* row = x + i / kWidth * kWidth;
        double sum = 0;
        for (int k = 0; k < kWidth; ++k) sum += double(row[k]) * row[k];
        double z = x[i] / sqrt(sum / kWidth + epsilon) * weight[i % kWidth];
        return dropout_bits(uint32_t(i)) < 0x1999999au ? 0.0 : 0.5 * z * (1 + erf(z * 0.70710678118654752)) / 0.9;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int cluster = positive(args, "cluster", 10, 16), rows = positive(args, "rows", 6400, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(cluster == 10 || cluster == 5, "--cluster must be 10 or 5");
    require(rows % 20 == 0, "--rows must be a multiple of 20");
    size_t n = size_t(rows) * kWidth;
    float *x = device_alloc<float>(n), *out = device_alloc<float>(n), *weight = device_alloc<float>(kWidth);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(weight, size_t(kWidth), key + 1, 0.5f, 1.5f);
    poison(out, n * 4);
    CHECK_CUDA(cudaFuncSetAttribute(sharded_norm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSlots * 4));
    CHECK_CUDA(cudaFuncSetAttribute(sharded_norm, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    const int rows_a_cluster = kSlots / (kWidth / cluster);
    auto launch = [&] {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = unsigned(cluster);
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(unsigned(rows / rows_a_cluster * cluster));
        config.blockDim = dim3(320);
        config.dynamicSmemBytes = kSlots * 4;
        config.attrs = &attribute;
        config.numAttrs = 1;
        CHECK_CUDA(cudaLaunchKernelEx(&config, sharded_norm, reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(weight),
                                      reinterpret_cast<float4*>(out), 1e-6f));
    };
    launch_once(launch);
    double error = sample_error(out, n, Reference{x, weight, 1e-6f}, 8192);
    return report("faults/p-shards", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
