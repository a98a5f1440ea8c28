// Sums of tiles of 16 KB that bulk copies bring into shared memory, two buffers, four blocks an SM: 256 copies of 64 bytes a tile, or one.
#include "tensor.cuh"
constexpr int kTile = 4096, kThreads = 128;

template <int PIECE>
__device__ void sum_tiles(const float* in, float* out, int tiles) {
    extern __shared__ __align__(128) float shared[];
    __shared__ uint64_t full[2];
    __shared__ float part[2][kThreads / 32];
    if (threadIdx.x == 0) {
        bar_init(&full[0], 1), bar_init(&full[1], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto load = [&](int tile, int s) {
        bar_expect(&full[s], kTile * 4);
#pragma unroll 4
        for (int at = 0; at < kTile; at += PIECE) bulk_load(shared + s * kTile + at, in + size_t(tile) * kTile + at, PIECE * 4, &full[s]);
    };
    if (threadIdx.x == 0 && blockIdx.x < tiles) load(blockIdx.x, 0);
    for (int tile = blockIdx.x, i = 0; tile < tiles; tile += gridDim.x, ++i) {
        int s = i % 2;
        // The other buffer is free: the barrier at the end of the last turn came after its last read.
        if (threadIdx.x == 0 && tile + gridDim.x < tiles) load(tile + gridDim.x, s ^ 1);
        bar_wait(&full[s], (i / 2) & 1);
        const float4* from = reinterpret_cast<const float4*>(shared + s * kTile);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kTile / 4 / kThreads; ++j) {
            float4 v = from[threadIdx.x + j * kThreads];
            sum += (v.x + v.y) + (v.z + v.w);
        }
        for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) part[s][threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) out[tile] = (part[s][0] + part[s][1]) + (part[s][2] + part[s][3]);
    }
}
__global__ void __launch_bounds__(kThreads) tile_sums_pieces(const float* in, float* out, int tiles) { sum_tiles<16>(in, out, tiles); }
__global__ void __launch_bounds__(kThreads) tile_sums_whole(const float* in, float* out, int tiles) { sum_tiles<kTile>(in, out, tiles); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int tiles = int(args.get("tiles", 32768)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(tiles > 0, "--tiles must be positive");
    size_t n = size_t(tiles) * kTile;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(tiles);
    fill_uniform(in, n, key, 0.f, 1.f);
    auto hi = to_host(in, n);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int j = 0; j < kTile; ++j) sum += hi[i * kTile + j];
        return sum;
    };
    int blocks = std::min(4 * sm_count(), tiles);
    auto launch = [&] {
        if (fault) tile_sums_pieces<<<blocks, kThreads, 2 * kTile * 4>>>(in, out, tiles);
        else tile_sums_whole<<<blocks, kThreads, 2 * kTile * 4>>>(in, out, tiles);
    };
    return run_checked(fault ? "faults/tile-sums-pieces" : "faults/tile-sums-whole", reps, launch, out, tiles, reference, 1.0 * n, 4.0 * n, 1e-5, 32768);
}
