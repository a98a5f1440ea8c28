// Softmax of rows of 65536 floats: a cluster of eight blocks holds a row in registers and exchanges its sums through
// distributed shared memory.
#include <cooperative_groups.h>

#include "g_util.cuh"
using namespace held;
namespace cg = cooperative_groups;

constexpr int kRow = 65536, kParts = 8;

__global__ void __cluster_dims__(kParts, 1, 1) __launch_bounds__(256) cluster_softmax(const float* in, float* out) {
    __shared__ float2 mine;
    __shared__ float scratch[8], scratch2[8];
    cg::cluster_group cluster = cg::this_cluster();
    size_t base = size_t(blockIdx.x) * (kRow / kParts);
    const float4* from = reinterpret_cast<const float4*>(in + base) + threadIdx.x;
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = __ldcs(from + i * 256);
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) top = fmaxf(top, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) top = fmaxf(top, scratch[i]);
    constexpr float LOG2E = 1.4426950408889634f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        v[i] = make_float4(ex2((v[i].x - top) * LOG2E), ex2((v[i].y - top) * LOG2E), ex2((v[i].z - top) * LOG2E),
                           ex2((v[i].w - top) * LOG2E));
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) scratch2[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < 8; ++i) sum += scratch2[i];
        mine = make_float2(top, sum);
    }
    cluster.sync();
    float2 parts[kParts];
    float best = -INFINITY, total = 0;
#pragma unroll
    for (int r = 0; r < kParts; ++r) {
        parts[r] = *cluster.map_shared_rank(&mine, r);
        best = fmaxf(best, parts[r].x);
    }
#pragma unroll
    for (int r = 0; r < kParts; ++r) total += parts[r].y * ex2((parts[r].x - best) * LOG2E);
    float scale = ex2((top - best) * LOG2E) / total;
    float4* to = reinterpret_cast<float4*>(out + base) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 8; ++i)
        __stcs(to + i * 256, make_float4(v[i].x * scale, v[i].y * scale, v[i].z * scale, v[i].w * scale));
    cluster.sync();  // no block leaves while another reads its sums
}

__global__ void reference_softmax(const float* in, float* out) {
    __shared__ double part[1024];
    const float* from = in + size_t(blockIdx.x) * kRow;
    double sum = 0;
    for (int i = threadIdx.x; i < kRow; i += 1024) sum += exp(double(from[i]));
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int o = 512; o; o >>= 1) {
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < kRow; i += 1024) out[size_t(blockIdx.x) * kRow + i] = float(exp(double(from[i])) / part[0]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int rows = int(args.get("rows", 2048));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(rows > 0 && rows <= 16384, "--rows out of range");
    size_t n = size_t(rows) * kRow;
    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(n);
    float* ref = device_alloc<float>(n);
    fill_uniform(in, n, s, -6.0f, 6.0f);
    reference_softmax<<<rows, 1024>>>(in, ref);
    poison(out, n * 4);
    finish();
    auto launch = [&] { cluster_softmax<<<rows * kParts, 256>>>(in, out); };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-cluster", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-4);
}
