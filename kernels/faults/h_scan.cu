// Exclusive prefix sum of 32-bit integers.
#include "h_harness.cuh"

// Exclusive sum over the block of one value a thread; `total` gets the sum of all.
__device__ int block_exclusive(int value, int* warps, int& total) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = blockDim.x / 32;
    int sum = value;
    for (int s = 1; s < 32; s <<= 1) {
        int o = __shfl_up_sync(0xffffffffu, sum, s);
        if (lane >= s) sum += o;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        int v = lane < count ? warps[lane] : 0;
        for (int s = 1; s < 32; s <<= 1) {
            int o = __shfl_up_sync(0xffffffffu, v, s);
            if (lane >= s) v += o;
        }
        warps[lane] = v;
    }
    __syncthreads();
    total = warps[count - 1];
    return sum - value + (warp ? warps[warp - 1] : 0);
}

__device__ int4 spread(int4 v, int start) {
    return make_int4(start, start + v.x, start + v.x + v.y, start + v.x + v.y + v.z);
}

__global__ void __launch_bounds__(1024) prefix_sum(const int4* __restrict__ in, int4* __restrict__ out, int vectors) {
    __shared__ int warps[32];
    int carry = 0;
    for (int base = 0; base < vectors; base += blockDim.x) {
        int i = base + threadIdx.x;
        int4 v = i < vectors ? in[i] : make_int4(0, 0, 0, 0);
        int total;
        int start = carry + block_exclusive(v.x + v.y + v.z + v.w, warps, total);
        if (i < vectors) out[i] = spread(v, start);
        carry += total;
    }
}

constexpr int kTileThreads = 384, kTileVectors = 2 * kTileThreads;

__global__ void __launch_bounds__(kTileThreads) tile_sums(const int4* __restrict__ in, int* __restrict__ sums, int vectors) {
    __shared__ int warps[32];
    int sum = 0;
    for (int j = 0; j < 2; ++j) {
        int i = blockIdx.x * kTileVectors + j * kTileThreads + threadIdx.x;
        int4 v = i < vectors ? in[i] : make_int4(0, 0, 0, 0);
        sum += v.x + v.y + v.z + v.w;
    }
    int total;
    block_exclusive(sum, warps, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void __launch_bounds__(1024) scan_sums(int* sums, int n) {
    __shared__ int warps[32];
    int carry = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        int i = base + threadIdx.x;
        int v = i < n ? sums[i] : 0, total;
        int start = carry + block_exclusive(v, warps, total);
        if (i < n) sums[i] = start;
        carry += total;
    }
}

// A block's tile, given what comes before it.
__global__ void __launch_bounds__(kTileThreads) prefix_sum_tile(const int4* __restrict__ in, const int* __restrict__ before,
                                                                int4* __restrict__ out, int vectors) {
    __shared__ int warps[32];
    int i = blockIdx.x * kTileVectors + threadIdx.x;
    int4 none = make_int4(0, 0, 0, 0);
    int4 a = i < vectors ? in[i] : none;
    int4 b = i + kTileThreads < vectors ? in[i + kTileThreads] : none;
    int start = before[blockIdx.x], total;
    int first = block_exclusive(a.x + a.y + a.z + a.w, warps, total) + start;
    if (i < vectors) out[i] = spread(a, first);
    start += total;
    int second = block_exclusive(b.x + b.y + b.z + b.w, warps, total) + start;
    if (i + kTileThreads < vectors) out[i + kTileThreads] = spread(b, second);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 12582912, 1 << 27);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    int vectors = n / 4;
    int tiles = int(blocks_for(vectors, kTileVectors));
    int *in = device_alloc<int>(n), *out = device_alloc<int>(n), *sums = device_alloc<int>(tiles);
    fill_uniform(in, n, key, -4.0f, 12.0f);
    poison(out, size_t(n) * 4);
    auto *from = reinterpret_cast<int4*>(in), *to = reinterpret_cast<int4*>(out);
    auto launch = [&] {
        if (fix) {
            tile_sums<<<tiles, kTileThreads>>>(from, sums, vectors);
            scan_sums<<<1, 1024>>>(sums, tiles);
            prefix_sum_tile<<<tiles, kTileThreads>>>(from, sums, to, vectors);
        } else {
            prefix_sum<<<1, 1024>>>(from, to, vectors);
        }
    };
    launch_once(launch);
    std::vector<int> host = to_host(in, n), got = to_host(out, n);
    size_t wrong = 0;
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        wrong += got[i] != sum;
        sum += host[i];
    }
    double us = median_us(launch, reps);
    return report("faults/h-scan", us, 0, 8.0 * n, double(wrong), 0);
}
