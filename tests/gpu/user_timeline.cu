// A program that is none of the bundled kernels, for the time line: two warps load tiles with cp.async into a ring in shared memory,
// two reduce them. Needs sm_80 and only diagnose_timeline.cuh. Used by tests/gpu/races_and_timeline.sh.
#include <cuda_runtime.h>

#include <cstdio>

#include "diagnose_timeline.cuh"

using diagnose_timeline::Kind;

constexpr int kTile = 1024, kStages = 4, kLoaders = 64, kThreads = 128;

// Named barriers: 1 + s says that stage s is full, 1 + kStages + s that it is empty.
__device__ __forceinline__ void meet(int id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(kThreads) : "memory"); }
__device__ __forceinline__ void pass(int id) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(kThreads) : "memory"); }

__global__ void __launch_bounds__(kThreads) ring_sum(const float4* in, float* out, int tiles) {
    __shared__ float4 ring[kStages][kTile / 4];
    bool loads = threadIdx.x < kLoaders;
    diagnose_timeline::Track track(loads ? 0 : 1, threadIdx.x % kLoaders == 0);
    if (loads) {
        for (int tile = 0; tile < tiles; ++tile) {
            int stage = tile % kStages;
            track.begin(Kind::barrier_wait, tile);
            if (tile >= kStages) meet(1 + kStages + stage);
            track.begin(Kind::user0, tile);
            const float4* from = in + (size_t(blockIdx.x) * tiles + tile) * (kTile / 4);
            for (int i = threadIdx.x; i < kTile / 4; i += kLoaders) {
                unsigned to = unsigned(__cvta_generic_to_shared(&ring[stage][i]));
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + i) : "memory");
            }
            track.begin(Kind::copy_wait, tile);
            asm volatile("cp.async.wait_all;" ::: "memory");
            __threadfence_block();
            pass(1 + stage);
        }
        track.end();
    } else {
        float sum = 0;
        for (int tile = 0; tile < tiles; ++tile) {
            int stage = tile % kStages;
            track.begin(Kind::barrier_wait, tile);
            meet(1 + stage);
            track.begin(Kind::compute, tile);
            for (int i = threadIdx.x - kLoaders; i < kTile / 4; i += kThreads - kLoaders) {
                float4 v = ring[stage][i];
                sum += v.x + v.y + v.z + v.w;
            }
            if (tile + kStages < tiles) pass(1 + kStages + stage);
        }
        track.begin(Kind::epilogue);
        atomicAdd(out, sum);
        track.end();
    }
}

int main() {
    const int blocks = 264, tiles = 64;
    const size_t n = size_t(blocks) * tiles * kTile;
    float *in = nullptr, *out = nullptr, sum = 0;
    float* host = new float[n];
    for (size_t i = 0; i < n; ++i) host[i] = float(i % 7 == 0);
    size_t expected = (n + 6) / 7;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice);
    diagnose_timeline::name(Kind::user0, "copy-issue");
    diagnose_timeline::start("ring_sum", {"loaders", "adders"});
    for (int launch = 0; launch < 3; ++launch) {
        cudaMemset(out, 0, sizeof(float));
        ring_sum<<<blocks, kThreads>>>(reinterpret_cast<const float4*>(in), out, tiles);
    }
    cudaMemcpy(&sum, out, sizeof(float), cudaMemcpyDeviceToHost);
    std::printf("sum %.0f, expected %zu: %s\n", sum, expected, cudaGetErrorString(cudaGetLastError()));
    diagnose_timeline::write();
    return sum == float(expected) ? 0 : 1;
}
