// Attention of one query a head over a long cache of keys and values, split over the keys: all that counts is the rate at
// which the cache is read.
// diagnose: expect hbm-bandwidth
//
// SMs read at rates that differ by a quarter, so that equal shares would leave the fast ones idle at the end: a CTA takes a few
// tiles of its head at a time for as long as there are any, then helps at the next head that has some. One warp takes tiles and
// loads them by TMA into a ring of stages; four warps multiply 16 keys of each. The heads that share keys (up to 8) are the rows of
// mma.sync's first operand. A CTA leaves, for every head that it worked at, its weighted sum; the last one at a head combines
// them. Nothing hides that end, so that it is short: every thread has four columns of a row, and the loads of sixteen parts are
// under way together.
//
// --stages 2..6: a stage is a tile of K and one of V. Up to 3 (head dimension 128) two CTAs fit on an SM, above that one.
// --unit 1..1024: tiles taken at a time.   --l2 0|64|128|256: bytes that a miss brings into L2 around what is asked for.
#include "check.cuh"
#include "panels.cuh"

constexpr int kTileKeys = 64, kWarps = 4, kThreads = (kWarps + 1) * 32, kMaxStages = 6, kMaxGroup = 8;

// Per head: tiles taken (and more, by those who came too late), CTAs that took some, tiles whose sums are there. `producers`: CTAs
// that take no more. All are 0 again at the end of a launch.
struct Progress {
    unsigned *taken, *sharers, *finished, *producers;
};

// After the stages, each a tile of K, then one of V.
template <int D>
struct Shared {
    uint64_t full[kMaxStages], empty[kMaxStages];
    int head[kMaxStages], part[kMaxStages];  // of the stage's tiles: the head, and where the CTA leaves its sums; -1 ends the work
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

// By a warp: the next head behind `head` that has tiles to take, -1 if none has.
__device__ inline int next_head(const Progress& progress, int head, int heads, int tiles_a_head) {
    for (int behind = 1; behind < heads; behind += 32) {
        int mine = behind + int(threadIdx.x % 32);
        int candidate = (head + mine) % heads;
        bool has = mine < heads && int(__ldcg(&progress.taken[candidate])) < tiles_a_head;
        unsigned found = __ballot_sync(0xffffffffu, has);
        if (found) return __shfl_sync(0xffffffffu, candidate, __ffs(found) - 1);
    }
    return -1;
}

// The loading warp: takes tiles, `unit` at a time, and fills the ring.
template <int D>
__device__ inline void produce(const CUtensorMap& map_k, const CUtensorMap& map_v, Shared<D>& shared, uint32_t stages,
                               int stage_count, const Progress& progress, int heads, int tiles_a_head, int unit) {
    constexpr uint32_t kTileBytes = kTileKeys * D * 2;
    int lane = threadIdx.x % 32;
    auto take = [&](int head) { return lane == 0 ? int(atomicAdd(&progress.taken[head], unsigned(unit))) : 0; };
    Ring ring{0, 1};
    int head = int((long long)blockIdx.x * heads / gridDim.x), part = -1;
    int taken = take(head);
    for (;;) {
        int first = __shfl_sync(0xffffffffu, taken, 0);
        if (first >= tiles_a_head) {
            head = next_head(progress, head, heads, tiles_a_head);
            if (head < 0) break;
            part = -1;
            taken = take(head);
            continue;
        }
        if (lane == 0 && part < 0) part = int(atomicAdd(&progress.sharers[head], 1u));
        part = __shfl_sync(0xffffffffu, part, 0);
        taken = take(head);  // ahead: the answer takes as long as a tile
        for (int tile = first; tile < min(first + unit, tiles_a_head); ++tile, ring.next(stage_count)) {
            if (lane != 0) continue;
            uint64_t* barrier = &shared.full[ring.slot];
            uint32_t target = stages + ring.slot * 2 * kTileBytes;
            int row = (head * tiles_a_head + tile) * kTileKeys;
            barrier_wait(&shared.empty[ring.slot], ring.parity);
            shared.head[ring.slot] = head, shared.part[ring.slot] = part;
            barrier_expect(barrier, 2 * kTileBytes);
            load_rows<D>(target, &map_k, row, kTileKeys, barrier);
            load_rows<D>(target + kTileBytes, &map_v, row, kTileKeys, barrier);
        }
        __syncwarp();
    }
    if (lane == 0) {
        barrier_wait(&shared.empty[ring.slot], ring.parity);
        shared.head[ring.slot] = -1;
        barrier_arrive(&shared.full[ring.slot]);
    }
    // The last one to take none leaves the counters as they were.
    __threadfence();
    int last = lane == 0 && atomicAdd(progress.producers, 1u) == gridDim.x - 1;
    if (!__shfl_sync(0xffffffffu, last, 0)) return;
    for (int i = lane; i < heads; i += 32) progress.taken[i] = 0;
    if (lane == 0) *progress.producers = 0;
}

template <int D>
__global__ void __launch_bounds__(kThreads, 2)
    attention_decode(const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                     const __nv_bfloat16* __restrict__ q, __nv_bfloat16* __restrict__ out, float* __restrict__ parts,
                     Progress progress, int heads, int tiles_a_head, int unit, int group, int max_parts, int stage_count,
                     float scale_log2) {
    constexpr uint32_t kTileBytes = kTileKeys * D * 2;
    // Aligned without slack: two CTAs fill an SM's shared memory to the last kilobytes.
    extern __shared__ __align__(1024) unsigned char dynamic[];
    Shared<D>& shared = *reinterpret_cast<Shared<D>*>(dynamic + stage_count * 2 * kTileBytes);
    uint32_t stages = shared_address(dynamic);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < stage_count; ++i) barrier_init(&shared.full[i], 1), barrier_init(&shared.empty[i], kWarps);
        barrier_init_visible();
    }
    __syncthreads();
    if (warp == kWarps) {
        produce<D>(map_k, map_v, shared, stages, stage_count, progress, heads, tiles_a_head, unit);
        return;
    }

    // Where this lane points ldmatrix, without the swizzle: chunk c of row r lies at chunk c ^ (r % 8).
    int row_k = warp * 16 + lane % 8 + lane / 16 * 8, chunk_k = lane / 8 % 2;
    int row_v = warp * 16 + lane % 16, chunk_v = lane / 16;
    int mine = lane / 4;  // the query head whose scores this lane holds; rows 8 to 15 of the fragments stay empty
    Ring ring{0, 0};
    // One lane reads and tells the others: it is the one that gives the stage back.
    auto told = [&](const int* where) { return __shfl_sync(0xffffffffu, lane == 0 ? where[ring.slot] : 0, 0); };
    barrier_wait(&shared.full[ring.slot], ring.parity);
    for (int head = told(shared.head); head >= 0;) {
        int part = told(shared.part), next = head;
        unsigned done = 0;
        uint32_t query[D / 16][2];
        const __nv_bfloat16* q_row = q + size_t(head * group + min(mine, group - 1)) * D + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 16; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) query[i][e] = *reinterpret_cast<const uint32_t*>(q_row + i * 16 + e * 8);
        float result[D / 8][4] = {}, largest = -INFINITY, total = 0;

        for (; next == head; ++done) {
            uint32_t k = stages + ring.slot * 2 * kTileBytes, v = k + kTileBytes;
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
            ring.next(stage_count);
            barrier_wait(&shared.full[ring.slot], ring.parity);
            next = told(shared.head);
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
        float* mine_out = part_of<D>(parts, head, part, max_parts, group);
        for (int i = threadIdx.x * 4; i < group * D; i += kWarps * 32 * 4) {
            int row = i / D, column = i % D;
            Part all, warps[kWarps];
#pragma unroll
            for (int w = 0; w < kWarps; ++w)
                warps[w] = {*reinterpret_cast<const float4*>(&shared.sum[w][row][column]), shared.largest[w][row],
                            shared.total[w][row]};
            combine(all, warps, scale_log2);
            float* to = mine_out + row * kPartRow<D>;
            *reinterpret_cast<float4*>(to + column) = all.sum;
            if (column == 0) *reinterpret_cast<float2*>(to + D) = make_float2(all.largest, all.total);
        }

        // The last CTA at this head reads what all have left. Its own part is there too.
        __threadfence();
        named_barrier(1, kWarps * 32);
        if (threadIdx.x == 0) shared.last = atomicAdd(&progress.finished[head], done) == unsigned(tiles_a_head) - done;
        named_barrier(1, kWarps * 32);
        if (shared.last) {
            __threadfence();
            constexpr int kBatch = 16;
            int count = int(__ldcg(&progress.sharers[head]));
            for (int i = threadIdx.x * 4; i < group * D; i += kWarps * 32 * 4) {
                int row = i / D, column = i % D;
                Part all;
                for (int c = 0; c < count; c += kBatch) {
                    Part others[kBatch];
#pragma unroll
                    for (int j = 0; j < kBatch; ++j) {
                        if (c + j >= count) continue;
                        const float* from = part_of<D>(parts, head, c + j, max_parts, group) + row * kPartRow<D>;
                        float2 weight = __ldcg(reinterpret_cast<const float2*>(from + D));
                        others[j] = {__ldcg(reinterpret_cast<const float4*>(from + column)), weight.x, weight.y};
                    }
                    combine(all, others, scale_log2);
                }
                uint32_t* to = reinterpret_cast<uint32_t*>(out + size_t(head) * group * D + i);
                to[0] = pack_bf16(all.sum.x / all.total, all.sum.y / all.total);
                to[1] = pack_bf16(all.sum.z / all.total, all.sum.w / all.total);
            }
            named_barrier(1, kWarps * 32);  // all have read how many parts there are
            if (threadIdx.x == 0) progress.finished[head] = progress.sharers[head] = 0;
        }
        head = next;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    AttentionShape shape(args, 16384, 128);
    long long stages = args.get("stages", 3), unit = args.get("unit", 8);
    long long l2 = args.get("l2", 128);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    require(stages >= 2 && stages <= kMaxStages, "--stages must be between 2 and 6");
    require(unit >= 1 && unit <= 1024, "--unit must be between 1 and 1024");
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
    int tiles_a_head = s / kTileKeys, units = (tiles_a_head + int(unit) - 1) / int(unit);
    int grid = int(std::min((long long)sms * resident, (long long)kv_heads * units));
    int max_parts = std::min(grid, units);  // a CTA works at a head once
    float* parts = device_alloc<float>(size_t(kv_heads) * max_parts * group * (d + 4));
    unsigned* counters = device_alloc<unsigned>(3 * size_t(kv_heads) + 1);
    CHECK_CUDA(cudaMemset(counters, 0, (3 * size_t(kv_heads) + 1) * sizeof(unsigned)));
    Progress progress{counters, counters + kv_heads, counters + 2 * size_t(kv_heads), counters + 3 * size_t(kv_heads)};
    auto promotion = CUtensorMapL2promotion(l2 == 256 ? 3 : l2 / 64);  // none, 64, 128, 256 bytes
    CUtensorMap map_k = panel_map(k, rows, d, kTileKeys, promotion), map_v = panel_map(v, rows, d, kTileKeys, promotion);
    float scale_log2 = float(1.4426950408889634 / std::sqrt(double(d)));
    auto launch = [&] {
        kernel<<<grid, kThreads, bytes>>>(map_k, map_v, q, out, parts, progress, kv_heads, tiles_a_head, int(unit), group,
                                          max_parts, int(stages), scale_log2);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = attention_error(q, k, v, out, shape.heads(), s, d, false, false, key + 3, group, 1);
    // bf16 rounding of the weights and of the output costs about 2e-3.
    return report("attention/decode", median_us(launch, runs), 0, 4.0 * n, error, 6e-3);
}
