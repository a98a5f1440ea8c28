// Attention with roles: one warp loads by TMA, two warpgroups of 64 queries multiply and take turns, so that one
// exponentiates while the other keeps the Tensor Cores busy.
// diagnose: expect tensor-compute
//
// Three things overlap. Between the warpgroups: named barriers let them issue their products in turn.
// Inside a warpgroup: Q K^T of the next tile and P V of this one are issued together, and the softmax of the next tile
// runs while P V is under way. Between blocks of queries: the kernel is persistent, and the loads of the next block start
// while this one ends.
//
// --stages 1..3: tiles of K, and of V, in flight.
#include "../common/diagnose_timeline.cuh"
#include "inputs.cuh"
#include "online.cuh"

using diagnose_timeline::Kind;

constexpr int kGroups = 2, kQueries = 64 * kGroups, kThreads = 128 * (kGroups + 1), kMaxStages = 3;
// 168 registers a thread at launch: 168 * 384 = 24 * 128 + 240 * 256.
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

struct Barriers {
    uint64_t q_full[kGroups], q_empty[kGroups];
    uint64_t k_full[kMaxStages], k_empty[kMaxStages], v_full[kMaxStages], v_empty[kMaxStages];
    uint64_t block_full[2], block_empty[2];
    int block[2];
};

// Which 128 queries of which head a block number stands for. `section` heads at a time, so that their K and V stay in L2;
// inside a section the longest causal blocks first, so that the short ones fill the end.
struct Work {
    int head, first, tiles;
};
template <bool Causal>
__device__ inline Work work_of(int block, int s, int heads, int section) {
    int per_head = s / kQueries, at = block / (section * per_head), rest = block % (section * per_head);
    int here = min(section, heads - at * section);
    int level = rest / here;
    int q = Causal ? per_head - 1 - level : level;
    return {at * section + rest % here, q * kQueries, (Causal ? (q + 1) * kQueries : s) / kKeys};
}

// counter[0]: blocks handed out beyond the first of each CTA; counter[1]: CTAs that are done. Both are 0 again at the end.
template <int D, bool Causal>
__device__ inline void produce(const CUtensorMap& map_q, const CUtensorMap& map_k, const CUtensorMap& map_v, Barriers& bar,
                               uint32_t shared_q, uint32_t shared_k, uint32_t shared_v, int s, int heads, int group,
                               int section, int stages, unsigned* counter) {
    constexpr uint32_t kTileBytes = kKeys * D * 2, kOwnBytes = 64 * D * 2;
    int blocks = heads * (s / kQueries), block = blockIdx.x;
    Ring k{0, 1}, v{0, 1}, turn{0, 1};
    uint32_t q_parity = 1;
    diagnose_timeline::Track track(0, true);
    for (;; turn.next(2), q_parity ^= 1) {
        track.begin(Kind::barrier_wait);
        barrier_wait(&bar.block_empty[turn.slot], turn.parity);
        bar.block[turn.slot] = block < blocks ? block : -1;
        barrier_arrive(&bar.block_full[turn.slot]);
        if (block >= blocks) break;
        Work work = work_of<Causal>(block, s, heads, section);
        block = int(gridDim.x + atomicAdd(counter, 1u));
        int key = work.head / group * s;
        for (int tile = work.tiles - 1; tile >= 0; --tile) {
            track.begin(Kind::barrier_wait, tile);
            barrier_wait(&bar.k_empty[k.slot], k.parity);
            track.begin(Kind::tma_issue, tile);
            barrier_expect(&bar.k_full[k.slot], kTileBytes);
            load_rows<D>(shared_k + k.slot * kTileBytes, &map_k, key + tile * kKeys, kKeys, &bar.k_full[k.slot]);
            k.next(stages);
            if (tile == work.tiles - 1) {
#pragma unroll
                for (int i = 0; i < kGroups; ++i) {
                    track.begin(Kind::barrier_wait, tile);
                    barrier_wait(&bar.q_empty[i], q_parity);
                    track.begin(Kind::tma_issue, tile);
                    barrier_expect(&bar.q_full[i], kOwnBytes);
                    load_rows<D>(shared_q + i * kOwnBytes, &map_q, work.head * s + work.first + i * 64, 64, &bar.q_full[i]);
                }
            }
            track.begin(Kind::barrier_wait, tile);
            barrier_wait(&bar.v_empty[v.slot], v.parity);
            track.begin(Kind::tma_issue, tile);
            barrier_expect(&bar.v_full[v.slot], kTileBytes);
            load_rows<D>(shared_v + v.slot * kTileBytes, &map_v, key + tile * kKeys, kKeys, &bar.v_full[v.slot]);
            v.next(stages);
        }
    }
    track.end();
    __threadfence();
    if (atomicAdd(counter + 1, 1u) == gridDim.x - 1) counter[0] = counter[1] = 0;
}

// Where the earlier sums shrink: beside Q K^T of the next tile, or after P V of this one. The first is 1.7 % faster on the
// H200, except with a mask and 128 columns, where it is 1 to 2 % slower.
template <int D, bool Causal>
constexpr bool kShrinkLate = !Causal || D == 64;

template <int D, bool Causal>
__device__ inline void consume(__nv_bfloat16* __restrict__ out, Barriers& bar, uint32_t shared_q, uint32_t shared_k,
                               uint32_t shared_v, int s, int heads, int section, int stages, float scale_log2) {
    constexpr uint32_t kTileBytes = kKeys * D * 2, kOwnBytes = 64 * D * 2;
    int lane = threadIdx.x % 32, own = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;
    uint32_t own_q = shared_q + own * kOwnBytes;
    float result[D / 2], score[kKeys / 2];
    uint32_t weight[kKeys / 16][4];
    Ring k{0, 0}, v{0, 0}, turn{0, 0};
    uint32_t q_parity = 0;
    // Every lane has waited for the products that read the slot; the barriers count warps.
    auto release = [&](uint64_t* barrier) {
        __syncwarp();
        if (lane == 0) barrier_arrive(barrier);
    };
    diagnose_timeline::Track track(1 + own, threadIdx.x % 128 == 0);
    // Named barriers 1 and 2 are the turns of the two warpgroups; the first one begins.
    if (own == 1) named_barrier_arrive(1, 128 * kGroups);
    for (;; turn.next(2), q_parity ^= 1) {
        track.begin(Kind::barrier_wait);
        barrier_wait(&bar.block_full[turn.slot], turn.parity);
        int block = bar.block[turn.slot];
        release(&bar.block_empty[turn.slot]);
        if (block < 0) break;
        Work work = work_of<Causal>(block, s, heads, section);
        float largest[2] = {-INFINITY, -INFINITY}, total[2] = {}, shrink[2];

        // From the last tile to the first: only the first step has keys to mask.
        barrier_wait(&bar.q_full[own], q_parity);
        barrier_wait(&bar.k_full[k.slot], k.parity);
        track.begin(Kind::wgmma_issue, work.tiles - 1);
        wgmma_fence();
        multiply_keys<D>(score, own_q, 64, shared_k + k.slot * kTileBytes);
        wgmma_commit();
        track.begin(Kind::wgmma_wait, work.tiles - 1);
        wgmma_wait<0>();
        pin(score);
        track.begin(Kind::user0, work.tiles - 1);
        release(&bar.k_empty[k.slot]);
        k.next(stages);
        if (work.tiles == 1) release(&bar.q_empty[own]);
        if (Causal)
            mask_causal(score, work.first + own * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4,
                        (work.tiles - 1) * kKeys + lane % 4 * 2);
        softmax_step(score, largest, total, shrink, scale_log2);
        pack_weights(weight, score);
#pragma unroll
        for (int i = 0; i < D / 2; ++i) result[i] = 0;

#pragma unroll 1
        for (int tile = work.tiles - 2; tile >= 0; --tile) {
            track.begin(Kind::barrier_wait, tile);
            barrier_wait(&bar.k_full[k.slot], k.parity);
            named_barrier(1 + own, 128 * kGroups);
            pin(result);
            track.begin(Kind::wgmma_issue, tile);
            wgmma_fence();
            multiply_keys<D>(score, own_q, 64, shared_k + k.slot * kTileBytes);
            wgmma_commit();
            barrier_wait(&bar.v_full[v.slot], v.parity);
            if (kShrinkLate<D, Causal>) rescale(result, shrink);  // while Q K^T runs
            pin(result);
            wgmma_fence();
            multiply_values<D>(result, weight, shared_v + v.slot * kTileBytes);
            wgmma_commit();
            named_barrier_arrive(2 - own, 128 * kGroups);
            track.begin(Kind::wgmma_wait, tile);
            wgmma_wait<1>();
            pin(score);
            track.begin(Kind::user0, tile);
            if (tile == 0) release(&bar.q_empty[own]);
            softmax_step(score, largest, total, shrink, scale_log2);
            // ptxas sees nothing that keeps the next wait behind the softmax, and moves it in front, where P V would not
            // overlap. So the release of K is made to depend on the sums: they are positive, their sign bit is 0.
            release(&bar.k_empty[k.slot + (__float_as_uint(fminf(total[0], total[1])) >> 31)]);
            k.next(stages);
            track.begin(Kind::wgmma_wait, tile);
            wgmma_wait<0>();
            pin(result);
            track.begin(Kind::user0, tile);
            release(&bar.v_empty[v.slot]);
            v.next(stages);
            pack_weights(weight, score);
            if (!kShrinkLate<D, Causal>) rescale(result, shrink);
        }
        track.begin(Kind::barrier_wait);
        barrier_wait(&bar.v_full[v.slot], v.parity);
        track.begin(Kind::wgmma_issue);
        if (kShrinkLate<D, Causal>) rescale(result, shrink);
        pin(result);
        wgmma_fence();
        multiply_values<D>(result, weight, shared_v + v.slot * kTileBytes);
        wgmma_commit();
        track.begin(Kind::wgmma_wait);
        wgmma_wait<0>();
        pin(result);
        track.begin(Kind::epilogue);
        release(&bar.v_empty[v.slot]);
        v.next(stages);
        store_result<D>(out + (size_t(work.head) * s + work.first + own * 64) * D, result, total);
    }
    track.end();
    // One turn of the first warpgroup is left over: it has been given and not taken.
    if (own == 0) named_barrier(1, 128 * kGroups);
}

template <int D, bool Causal>
__global__ void __launch_bounds__(kThreads, 1)
    attention_specialised(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                          const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* __restrict__ out, int s, int heads,
                          int group, int section, int stages, float scale_log2, unsigned* counter) {
    extern __shared__ unsigned char shared[];
    __shared__ Barriers bar;
    uint32_t shared_q = aligned_1024(shared), shared_k = shared_q + kQueries * D * 2;
    uint32_t shared_v = shared_k + stages * kKeys * D * 2;
    if (threadIdx.x == 0) {
        // A slot is full when the producer has announced its bytes and they are there, empty when each warp has said so.
        for (int i = 0; i < kGroups; ++i) barrier_init(&bar.q_full[i], 1), barrier_init(&bar.q_empty[i], 4);
        for (int i = 0; i < stages; ++i) {
            barrier_init(&bar.k_full[i], 1), barrier_init(&bar.k_empty[i], 4 * kGroups);
            barrier_init(&bar.v_full[i], 1), barrier_init(&bar.v_empty[i], 4 * kGroups);
        }
        for (int i = 0; i < 2; ++i) barrier_init(&bar.block_full[i], 1), barrier_init(&bar.block_empty[i], 4 * kGroups);
        barrier_init_visible();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_give<kProducerRegisters>();
        if (threadIdx.x == 0)
            produce<D, Causal>(map_q, map_k, map_v, bar, shared_q, shared_k, shared_v, s, heads, group, section, stages,
                               counter);
    } else {
        registers_take<kConsumerRegisters>();
        consume<D, Causal>(out, bar, shared_q, shared_k, shared_v, s, heads, section, stages, scale_log2);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    Attention attention(args);
    long long stages = args.get("stages", 3);
    args.done();
    require(stages >= 1 && stages <= kMaxStages, "--stages must be between 1 and 3");
    attention.fill();
    const AttentionShape& shape = attention.shape;
    int s = shape.s, d = shape.d, heads = shape.heads();

    size_t rows = size_t(heads) * s;
    CUtensorMap map_q = panel_map(attention.q, rows, d, 64);
    CUtensorMap map_k = panel_map(attention.k, rows / shape.group(), d, kKeys);
    CUtensorMap map_v = panel_map(attention.v, rows / shape.group(), d, kKeys);
    auto kernel = d == 64 ? (attention.causal ? attention_specialised<64, true> : attention_specialised<64, false>)
                          : (attention.causal ? attention_specialised<128, true> : attention_specialised<128, false>);
    int bytes = (kQueries + int(stages) * 2 * kKeys) * d * 2 + 1024;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));

    int device = 0, sms = 0, l2 = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device));
    // Half of L2: each of its two partitions keeps what the SMs beside it read.
    long long fit = std::max(1ll, l2 / 2 / (4ll * s * d)) * shape.group();
    int sections = int((heads + fit - 1) / fit), section = (heads + sections - 1) / sections;
    int blocks = heads * (s / kQueries), grid = std::min(sms, blocks);
    unsigned* counter = device_alloc<unsigned>(2);
    CHECK_CUDA(cudaMemset(counter, 0, 2 * sizeof(unsigned)));
    diagnose_timeline::start("attention_specialised", {"producer", "warpgroup 0", "warpgroup 1"});
    diagnose_timeline::name(Kind::user0, "softmax");
    int code = attention.run("attention/specialised", [&] {
        kernel<<<grid, kThreads, bytes>>>(map_q, map_k, map_v, attention.out, s, heads, shape.group(), section, int(stages),
                                          attention.scale_log2(), counter);
    });
    diagnose_timeline::write();
    return code;
}
