// Inclusive prefix sum in one pass; a block waits for the sum of all tiles before its own. Tiles are drawn in order, so
// the one waited for always runs.
#include "h_harness.cuh"

constexpr int kBlock = 256, kVectors = 8, kTile = kBlock * kVectors * 4;

__global__ void __launch_bounds__(kBlock) prefix(const int4* __restrict__ in, int4* __restrict__ out, unsigned* ticket, unsigned long long* sums) {
    __shared__ unsigned tile;
    __shared__ int warps[8], before;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (t == 0) tile = atomicAdd(ticket, 1u);
    __syncthreads();
    size_t first = size_t(tile) * (kTile / 4) + t * kVectors;
    int4 v[kVectors];
    int mine = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        v[k] = in[first + k];
        mine += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    int sum = mine;
#pragma unroll
    for (int s = 1; s < 32; s <<= 1) {
        int o = __shfl_up_sync(0xffffffffu, sum, s);
        if (lane >= s) sum += o;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int start = sum - mine, total = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        if (w < warp) start += warps[w];
        total += warps[w];
    }
    if (t == 0) {
        // A word holds "ready" and the sum, so that no fence is needed between them.
        unsigned long long word = 1ull << 32;
        if (tile > 0) {
            volatile unsigned long long* wait = sums + tile - 1;
            for (int turn = 0; !((word = *wait) >> 32); ++turn)
                if (turn > (1 << 26)) __trap();
        }
        before = int(unsigned(word));
        *static_cast<volatile unsigned long long*>(sums + tile) = 1ull << 32 | unsigned(before + total);
    }
    __syncthreads();
    start += before;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        int4 r;
        r.x = start += v[k].x;
        r.y = start += v[k].y;
        r.z = start += v[k].z;
        r.w = start += v[k].w;
        out[first + k] = r;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 16777216, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % kTile == 0, "--n must be a multiple of 8192");
    int tiles = n / kTile;
    int *in = device_alloc<int>(n), *out = device_alloc<int>(n);
    auto* sums = device_alloc<unsigned long long>(tiles);
    auto* ticket = device_alloc<unsigned>(1);
    fill_uniform(in, n, key, -5.0f, 15.0f);
    poison(out, size_t(n) * sizeof(int));
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(ticket, 0, sizeof(unsigned)));
        CHECK_CUDA(cudaMemsetAsync(sums, 0, size_t(tiles) * sizeof(unsigned long long)));
        prefix<<<tiles, kBlock>>>(reinterpret_cast<int4*>(in), reinterpret_cast<int4*>(out), ticket, sums);
    };
    launch_once(launch);
    std::vector<int> from = to_host(in, n), got = to_host(out, n);
    double wrong = 0;
    int sum = 0;
    for (int i = 0; i < n; ++i) wrong += got[i] != (sum += from[i]);
    return report("faults/k-relay", median_us(launch, reps), 0, 8.0 * n, wrong, 0);
}
