// Counts the events of eight kinds in a long record; about one word in a hundred is an event.
#include "h_harness.cuh"

__global__ void __launch_bounds__(256) count_events(const uint4* __restrict__ in, unsigned* __restrict__ counts, size_t vectors) {
    __shared__ unsigned mine[8];
    if (threadIdx.x < 8) mine[threadIdx.x] = 0;
    __syncthreads();
    auto look = [&](unsigned v) {
        if (v < 42949672u) atomicAdd(&mine[v & 7], 1u);
    };
    size_t stride = size_t(gridDim.x) * 256;
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    for (; i + 3 * stride < vectors; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = in[i + k * stride];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            look(v[k].x);
            look(v[k].y);
            look(v[k].z);
            look(v[k].w);
        }
    }
    for (; i < vectors; i += stride) {
        uint4 v = in[i];
        look(v.x);
        look(v.y);
        look(v.z);
        look(v.w);
    }
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(counts + threadIdx.x, mine[threadIdx.x]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 201326592, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    unsigned *in = device_alloc<unsigned>(n), *counts = device_alloc<unsigned>(8);
    fill_uniform(reinterpret_cast<uint8_t*>(in), size_t(n) * 4, key, 0.f, 1.f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(counts, 0, 8 * sizeof(unsigned)));
        count_events<<<1056, 256>>>(reinterpret_cast<uint4*>(in), counts, size_t(n) / 4);
    };
    launch_once(launch);
    std::vector<unsigned> got = to_host(counts, 8);
    unsigned want[8] = {};
    for (unsigned v : to_host(in, n))
        if (v < 42949672u) ++want[v & 7];
    double wrong = 0;
    for (int k = 0; k < 8; ++k) wrong += got[k] != want[k];
    return report("faults/k-tally", median_us(launch, reps), 0, 4.0 * n, wrong, 0);
}
