// Best inner product of every point with the centroids of a group (k-means assignment, scores only): 256 centroids of 256
// dimensions stay in shared memory, tiles of 64 points stream by. `fault`: one warpgroup that waits for every wgmma;
// `fix`: two warpgroups in turn, one wait a tile.
#include "g_util.cuh"
#include "wgmma.cuh"

constexpr int kDims = 256, kGroup = 256, kPoints = 64, kSlots = 3;
constexpr int kCentroidBytes = kGroup * kDims * 2, kPointBytes = kPoints * kDims * 2;
constexpr size_t kNearestShared = kCentroidBytes + kSlots * kPointBytes;

template <int WARPGROUPS, bool EACH>
__global__ void __launch_bounds__(WARPGROUPS * 128 + 32, 1)
    nearest_score(const __nv_bfloat16* points, const __nv_bfloat16* centroids, float* best, int count, int groups, int tiles) {
    extern __shared__ __align__(1024) unsigned char smem[];
    __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots], ready;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.x % groups, first = blockIdx.x / groups * tiles;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kSlots; ++i) {
            held::bar_init(&full[i], 1);
            held::bar_init(&empty[i], 4);
        }
        held::bar_init(&ready, 1);
        held::bar_init_visible();
    }
    __syncthreads();
    if (warp == WARPGROUPS * 4) {
        if (lane == 0) {
            const char* from = reinterpret_cast<const char*>(centroids) + size_t(group) * kCentroidBytes;
            held::bar_expect(&ready, kCentroidBytes);
            for (int i = 0; i < 4; ++i)
                held::bulk_load(smem + i * (kCentroidBytes / 4), from + i * (kCentroidBytes / 4), kCentroidBytes / 4, &ready);
            from = reinterpret_cast<const char*>(points) + size_t(first) * kPointBytes;
            for (int t = 0; t < tiles; ++t) {
                int slot = t % kSlots;
                if (t >= kSlots) held::bar_wait(&empty[slot], (t / kSlots - 1) & 1);
                held::bar_expect(&full[slot], kPointBytes);
                held::bulk_load(smem + kCentroidBytes + slot * kPointBytes, from + size_t(t) * kPointBytes, kPointBytes, &full[slot]);
            }
        }
        return;
    }
    held::bar_wait(&ready, 0);
    const uint64_t db = operand(smem, 4096, 128);
    for (int t = warp / 4; t < tiles; t += WARPGROUPS) {
        int slot = t % kSlots;
        held::bar_wait(&full[slot], (t / kSlots) & 1);
        const uint64_t da = operand(smem + kCentroidBytes + slot * kPointBytes, 1024, 128);
        float d[128];
#pragma unroll
        for (int i = 0; i < 128; ++i) d[i] = 0.0f;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kDims / 16; ++s) {
            wgmma_n256(d, da + s * (2 * 1024 / 16), db + s * (2 * 4096 / 16));
            if (EACH) {
                wgmma_commit();
                wgmma_wait<0>();
                wgmma_fence();
            }
        }
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
        if (lane == 0) held::bar_arrive(&empty[slot]);
        float upper = d[0], lower = d[2];
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            upper = fmaxf(upper, fmaxf(d[4 * j], d[4 * j + 1]));
            lower = fmaxf(lower, fmaxf(d[4 * j + 2], d[4 * j + 3]));
        }
        for (int x = 1; x <= 2; x *= 2) {
            upper = fmaxf(upper, __shfl_xor_sync(0xffffffffu, upper, x));
            lower = fmaxf(lower, __shfl_xor_sync(0xffffffffu, lower, x));
        }
        if (lane % 4 == 0) {
            float* to = best + size_t(group) * count + size_t(first + t) * kPoints + (warp % 4) * 16 + lane / 4;
            to[0] = upper;
            to[8] = lower;
        }
    }
}

__device__ inline size_t packed_whole(int row, int k, int height) {
    return size_t(row / height) * height * kDims + size_t(k / 8 * (height / 8) + row % height / 8) * 64 + row % 8 * 8 + k % 8;
}

// One block a sampled point and group, one thread a centroid.
__global__ void reference_score(const __nv_bfloat16* points, const __nv_bfloat16* centroids, const float* best, int count, int every,
                                float* out, float* ref) {
    __shared__ float scores[kGroup];
    int point = blockIdx.x * every + blockIdx.x % every, group = blockIdx.y;
    double sum = 0;
    for (int k = 0; k < kDims; ++k)
        sum += double(__bfloat162float(points[packed_whole(point, k, kPoints)])) *
               double(__bfloat162float(centroids[packed_whole(group * kGroup + threadIdx.x, k, kGroup)]));
    scores[threadIdx.x] = float(sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        float m = scores[0];
        for (int i = 1; i < kGroup; ++i) m = fmaxf(m, scores[i]);
        ref[size_t(group) * gridDim.x + blockIdx.x] = m;
        out[size_t(group) * gridDim.x + blockIdx.x] = best[size_t(group) * count + point];
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = held::wants_fix(args);
    int groups = int(args.get("groups", 12)), chunks = int(args.get("chunks", 11)), tiles = int(args.get("tiles", 96));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(groups > 0 && groups <= 256 && chunks > 0 && chunks <= 1024 && tiles > 0 && tiles <= 1024, "sizes out of range");
    int count = chunks * tiles * kPoints;
    auto* points = device_alloc<__nv_bfloat16>(size_t(count) * kDims);
    auto* centroids = device_alloc<__nv_bfloat16>(size_t(groups) * kGroup * kDims);
    float* best = device_alloc<float>(size_t(groups) * count);
    fill_uniform(points, size_t(count) * kDims, s, -1.0f, 1.0f);
    fill_uniform(centroids, size_t(groups) * kGroup * kDims, s + 1, -1.0f, 1.0f);
    poison(best, size_t(groups) * count * 4);
    auto kernel = fix ? nearest_score<2, false> : nearest_score<1, true>;
    held::allow_shared(kernel, kNearestShared);
    auto launch = [&] {
        kernel<<<groups * chunks, (fix ? 2 : 1) * 128 + 32, kNearestShared>>>(points, centroids, best, count, groups, tiles);
    };
    launch();
    held::finish();
    constexpr int every = 16;
    size_t sampled = size_t(groups) * (count / every);
    float* out = device_alloc<float>(sampled);
    float* ref = device_alloc<float>(sampled);
    reference_score<<<dim3(count / every, groups), kGroup>>>(points, centroids, best, count, every, out, ref);
    held::finish();
    double error = held::device_error(out, ref, sampled);
    return report("faults/g-nearest", median_us(launch, reps), 2.0 * count * groups * kGroup * kDims, 0, error, 1e-4);
}
