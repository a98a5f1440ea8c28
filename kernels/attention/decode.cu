// Attention of one query a head over a long cache of keys and values, split over the keys: all that counts is the rate at
// which the cache is read.
// diagnose: expect hbm-bandwidth
//
// The tiles of all heads form one line, which the CTAs share equally, so that no SM ends early. One warp loads them by TMA
// into a ring of stages; four warps take 16 keys of each. The heads that share keys (up to 8) are the rows of mma.sync's
// first operand. A CTA leaves, for every head that it touches, its weighted sum; the last CTA at a head combines them.
// Nothing hides that end, so that it is short: every thread has four columns of a row, and the loads of eight parts are
// under way together.
//
// --stages 2..6: a stage is a tile of K and one of V. Up to 3 (head dimension 128) two CTAs fit on an SM, above that one.
// --waves 1..16: CTAs that follow each other on an SM; with more of them, SMs that read faster take more.
// --l2 0|64|128|256: bytes that a miss brings into L2 around what is asked for. 256 costs 7 % of HBM's rate on an H200 (1 GiB in
// 259 us instead of 240, tests/gpu/read_paths.cu): half as much again crosses between the two halves of L2.
#include "check.cuh"
#include "panels.cuh"

constexpr int kTileKeys = 64, kWarps = 4, kThreads = (kWarps + 1) * 32, kMaxStages = 6, kMaxGroup = 8;

// The line of `tiles` tiles among `ctas`: CTA c has those from share_start(c) to share_start(c + 1).
__host__ __device__ inline int share_start(int cta, int tiles, int ctas) { return int((long long)cta * tiles / ctas); }
__host__ __device__ inline int share_owner(int tile, int tiles, int ctas) {
    return int(((long long)(tile + 1) * ctas - 1) / tiles);
}

// After the stages, each a tile of K, then one of V.
template <int D>
struct Shared {
    uint64_t full[kMaxStages], empty[kMaxStages];
    float largest[kWarps][kMaxGroup], total[kWarps][kMaxGroup];
    alignas(16) float sum[kWarps][kMaxGroup][D];
    bool last;
};

// The weighted sum of four columns of a row, over some of the keys.
struct Part {
    float4 sum = {0, 0, 0, 0};
    float largest = -INFINITY, total = 0;  // of the scores, and of their weights relative to it

    __device__ void scale(float by) {
        sum.x *= by, sum.y *= by, sum.z *= by, sum.w *= by;
        total *= by;
    }
    __device__ void add(const Part& other, float by) {
        sum.x += other.sum.x * by, sum.y += other.sum.y * by, sum.z += other.sum.z * by, sum.w += other.sum.w * by;
        total += other.total * by;
    }
};

// Adds `Count` parts at once; one of no keys (largest is minus infinity) adds nothing.
template <int Count>
__device__ inline void combine(Part& all, const Part (&parts)[Count], float scale_log2) {
    float largest = all.largest;
#pragma unroll
    for (int i = 0; i < Count; ++i) largest = fmaxf(largest, parts[i].largest);
    all.scale(exp2_fast((all.largest - largest) * scale_log2));
    all.largest = largest;
#pragma unroll
    for (int i = 0; i < Count; ++i) all.add(parts[i], exp2_fast((parts[i].largest - largest) * scale_log2));
}

// Where a CTA leaves its part of a head: `group` rows of D sums, the largest score, the total, and two for the alignment.
template <int D>
constexpr int kPartRow = D + 4;
template <int D>
__device__ inline float* part_of(float* parts, int head, int part, int max_parts, int group) {
    return parts + (size_t(head) * max_parts + part) * group * kPartRow<D>;
}

template <int D>
__global__ void __launch_bounds__(kThreads, 2)
    attention_decode(const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                     const __nv_bfloat16* __restrict__ q, __nv_bfloat16* __restrict__ out, float* __restrict__ parts,
                     unsigned* __restrict__ arrived, int tiles, int tiles_a_head, int group, int max_parts,
                     int stage_count, float scale_log2) {
    constexpr uint32_t kTileBytes = kTileKeys * D * 2;
    // Aligned without slack: two CTAs fill an SM's shared memory to the last kilobytes.
    extern __shared__ __align__(1024) unsigned char dynamic[];
    Shared<D>& shared = *reinterpret_cast<Shared<D>*>(dynamic + stage_count * 2 * kTileBytes);
    uint32_t stages = shared_address(dynamic);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int begin = share_start(blockIdx.x, tiles, gridDim.x), end = share_start(blockIdx.x + 1, tiles, gridDim.x);
    if (threadIdx.x == 0) {
        for (int i = 0; i < stage_count; ++i) barrier_init(&shared.full[i], 1), barrier_init(&shared.empty[i], kWarps);
        barrier_init_visible();
    }
    __syncthreads();

    if (warp == kWarps) {
        if (lane == 0) {
            Ring ring{0, 1};
            for (int tile = begin; tile < end; ++tile, ring.next(stage_count)) {
                uint64_t* barrier = &shared.full[ring.slot];
                uint32_t target = stages + ring.slot * 2 * kTileBytes;
                barrier_wait(&shared.empty[ring.slot], ring.parity);
                barrier_expect(barrier, 2 * kTileBytes);
                load_rows<D>(target, &map_k, tile * kTileKeys, kTileKeys, barrier);
                load_rows<D>(target + kTileBytes, &map_v, tile * kTileKeys, kTileKeys, barrier);
            }
        }
        return;
    }

    // Where this lane points ldmatrix, without the swizzle: chunk c of row r lies at chunk c ^ (r % 8).
    int row_k = warp * 16 + lane % 8 + lane / 16 * 8, chunk_k = lane / 8 % 2;
    int row_v = warp * 16 + lane % 16, chunk_v = lane / 16;
    int mine = lane / 4;  // the query head whose scores this lane holds; rows 8 to 15 of the fragments stay empty
    Ring ring{0, 0};
    for (int tile = begin; tile < end;) {
        int head = tile / tiles_a_head, stop = min(end, (head + 1) * tiles_a_head);
        uint32_t query[D / 16][2];
        const __nv_bfloat16* q_row = q + size_t(head * group + min(mine, group - 1)) * D + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 16; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) query[i][e] = *reinterpret_cast<const uint32_t*>(q_row + i * 16 + e * 8);
        float result[D / 8][4] = {}, largest = -INFINITY, total = 0;

        for (; tile < stop; ++tile, ring.next(stage_count)) {
            uint32_t k = stages + ring.slot * 2 * kTileBytes, v = k + kTileBytes;
            barrier_wait(&shared.full[ring.slot], ring.parity);
            float score[2][4] = {};
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                uint32_t a[4] = {query[i][0], 0, query[i][1], 0}, b[4];
                int chunk = i % 4 * 2 + chunk_k;
                ldmatrix(b, k + i / 4 * (kTileKeys * 128) + row_k * 128 + (chunk ^ row_k % 8) * 16);
                mma(score[0], a, b[0], b[1]);
                mma(score[1], a, b[2], b[3]);
            }
            float peak = fmaxf(fmaxf(score[0][0], score[0][1]), fmaxf(score[1][0], score[1][1]));
            peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
            peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
            peak = fmaxf(peak, largest);
            float shrink = exp2_fast((largest - peak) * scale_log2), shift = peak * scale_log2;
            largest = peak;
            float p[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = exp2_fast(score[i / 2][i % 2] * scale_log2 - shift);
            total = total * shrink + (p[0] + p[1]) + (p[2] + p[3]);
            uint32_t weight[4] = {pack_bf16(p[0], p[1]), 0, pack_bf16(p[2], p[3]), 0};
#pragma unroll
            for (int j = 0; j < D / 8; ++j) result[j][0] *= shrink, result[j][1] *= shrink;
#pragma unroll
            for (int j = 0; j < D / 16; ++j) {
                uint32_t b[4];
                int chunk = j % 4 * 2 + chunk_v;
                ldmatrix_transposed(b, v + j / 4 * (kTileKeys * 128) + row_v * 128 + (chunk ^ row_v % 8) * 16);
                mma(result[2 * j], weight, b[0], b[1]);
                mma(result[2 * j + 1], weight, b[2], b[3]);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(&shared.empty[ring.slot]);
        }

        // The four warps of this CTA.
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if (lane % 4 == 0) shared.largest[warp][mine] = largest, shared.total[warp][mine] = total;
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
            *reinterpret_cast<float2*>(&shared.sum[warp][mine][j * 8 + lane % 4 * 2]) =
                make_float2(result[j][0], result[j][1]);
        named_barrier(1, kWarps * 32);
        int first = share_owner(head * tiles_a_head, tiles, gridDim.x);
        int count = share_owner((head + 1) * tiles_a_head - 1, tiles, gridDim.x) - first + 1;
        float* mine_out = part_of<D>(parts, head, blockIdx.x - first, max_parts, group);
        for (int i = threadIdx.x * 4; i < group * D; i += kWarps * 32 * 4) {
            int row = i / D, column = i % D;
            Part all, part[kWarps];
#pragma unroll
            for (int w = 0; w < kWarps; ++w)
                part[w] = {*reinterpret_cast<const float4*>(&shared.sum[w][row][column]), shared.largest[w][row],
                           shared.total[w][row]};
            combine(all, part, scale_log2);
            float* to = mine_out + row * kPartRow<D>;
            *reinterpret_cast<float4*>(to + column) = all.sum;
            if (column == 0) *reinterpret_cast<float2*>(to + D) = make_float2(all.largest, all.total);
        }

        // The last CTA at this head reads what all have left. Its own part is there too.
        __threadfence();
        named_barrier(1, kWarps * 32);
        if (threadIdx.x == 0) shared.last = atomicAdd(&arrived[head], 1u) == unsigned(count) - 1;
        named_barrier(1, kWarps * 32);
        if (shared.last) {
            __threadfence();
            constexpr int kBatch = 8;
            for (int i = threadIdx.x * 4; i < group * D; i += kWarps * 32 * 4) {
                int row = i / D, column = i % D;
                Part all;
                for (int c = 0; c < count; c += kBatch) {
                    Part part[kBatch];
#pragma unroll
                    for (int j = 0; j < kBatch; ++j) {
                        if (c + j >= count) continue;
                        const float* from = part_of<D>(parts, head, c + j, max_parts, group) + row * kPartRow<D>;
                        float2 weight = __ldcg(reinterpret_cast<const float2*>(from + D));
                        part[j] = {__ldcg(reinterpret_cast<const float4*>(from + column)), weight.x, weight.y};
                    }
                    combine(all, part, scale_log2);
                }
                uint32_t* to = reinterpret_cast<uint32_t*>(out + size_t(head) * group * D + i);
                to[0] = pack_bf16(all.sum.x / all.total, all.sum.y / all.total);
                to[1] = pack_bf16(all.sum.z / all.total, all.sum.w / all.total);
            }
            if (threadIdx.x == 0) arrived[head] = 0;  // for the next launch
        }
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    AttentionShape shape(args, 16384, 128);
    long long stages = args.get("stages", 3), waves = args.get("waves", 1), l2 = args.get("l2", 128);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(stages >= 2 && stages <= kMaxStages, "--stages must be between 2 and 6");
    require(waves >= 1 && waves <= 16, "--waves must be between 1 and 16");
    require(l2 == 0 || l2 == 64 || l2 == 128 || l2 == 256, "--l2 must be 0, 64, 128 or 256");
    int s = shape.s, d = shape.d, group = shape.group(), kv_heads = shape.heads() / group;
    require(s % kTileKeys == 0, "--s must be a multiple of 64");
    require(group <= kMaxGroup, "--h must be at most 8 times --kv_heads");
    require(size_t(kv_heads) * s <= size_t(INT32_MAX), "--b times --kv_heads times --s must be below 2^31");

    size_t rows = size_t(kv_heads) * s, n = rows * d;
    auto* q = device_alloc<__nv_bfloat16>(size_t(shape.heads()) * d);
    auto* k = device_alloc<__nv_bfloat16>(n);
    auto* v = device_alloc<__nv_bfloat16>(n);
    auto* out = device_alloc<__nv_bfloat16>(size_t(shape.heads()) * d);
    fill_uniform(q, size_t(shape.heads()) * d, key, -4, 4);
    fill_uniform(k, n, key + 1, -1, 1);
    fill_uniform(v, n, key + 2, -1, 1);
    poison(out, size_t(shape.heads()) * d * sizeof(*out));

    auto kernel = d == 64 ? attention_decode<64> : attention_decode<128>;
    int bytes = int(stages) * 2 * kTileKeys * d * 2 + int(d == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>));
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int device = 0, sms = 0, resident = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, bytes));
    require(resident > 0, "the kernel does not fit this GPU");
    int tiles_a_head = s / kTileKeys, tiles = kv_heads * tiles_a_head, grid = std::min(sms * resident * int(waves), tiles);
    // A CTA in the middle has at least tiles / grid tiles, rounded down; one more part at each end of a head.
    int max_parts = std::min(grid, tiles_a_head / (tiles / grid) + 2);
    float* parts = device_alloc<float>(size_t(kv_heads) * max_parts * group * (d + 4));
    unsigned* arrived = device_alloc<unsigned>(kv_heads);
    CHECK_CUDA(cudaMemset(arrived, 0, kv_heads * sizeof(unsigned)));
    auto promotion = l2 == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                     : l2 == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                     : l2 == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                                 : CU_TENSOR_MAP_L2_PROMOTION_NONE;
    CUtensorMap map_k = panel_map(k, rows, d, kTileKeys, promotion), map_v = panel_map(v, rows, d, kTileKeys, promotion);
    float scale_log2 = float(1.4426950408889634 / std::sqrt(double(d)));
    auto launch = [&] {
        kernel<<<grid, kThreads, bytes>>>(map_k, map_v, q, out, parts, arrived, tiles, tiles_a_head, group, max_parts,
                                          int(stages), scale_log2);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = attention_error(q, k, v, out, shape.heads(), s, d, false, false, key + 3, group, 1);
    // bf16 rounding of the weights and of the output costs about 2e-3.
    return report("attention/decode", median_us(launch, runs), 0, 4.0 * n, error, 6e-3);
}
