// Attention on wgmma: tiles of K and V come by TMA into two stages, 64 queries a warpgroup, weights stay in registers.
// diagnose: expect no-overlap
//
// All warps do the same: multiply, softmax, multiply, one after the other. While they exponentiate, the Tensor Cores wait.
#include "../common/diagnose_timeline.cuh"
#include "inputs.cuh"
#include "online.cuh"

using diagnose_timeline::Kind;

constexpr int kGroups = 2, kQueries = 64 * kGroups, kThreads = 128 * kGroups, kStages = 2;

template <int D>
constexpr int shared_bytes() {
    return (kQueries + kStages * 2 * kKeys) * D * 2 + 1024;
}

template <int D, bool Causal>
__global__ void __launch_bounds__(kThreads, 1)
    attention_tma(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                  const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* __restrict__ out, int s, int group,
                  float scale_log2) {
    constexpr uint32_t kTileBytes = kKeys * D * 2, kQueryBytes = kQueries * D * 2;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t q_full, full[kStages];
    uint32_t shared_q = aligned_1024(shared), stages = shared_q + kQueryBytes;  // a stage is a tile of K, then one of V
    int lane = threadIdx.x % 32, warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    int head = blockIdx.y;
    // The longest causal blocks start first.
    int q0 = int(Causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * kQueries;
    int first_q = head * s + q0, first_key = head / group * s;
    int tiles = (Causal ? q0 + kQueries : s) / kKeys;

    auto load_stage = [&](int tile) {
        uint64_t* barrier = &full[tile % kStages];
        uint32_t target = stages + tile % kStages * 2 * kTileBytes;
        barrier_expect(barrier, 2 * kTileBytes);
        load_rows<D>(target, &map_k, first_key + tile * kKeys, kKeys, barrier);
        load_rows<D>(target + kTileBytes, &map_v, first_key + tile * kKeys, kKeys, barrier);
    };
    if (threadIdx.x == 0) {
        barrier_init(&q_full, 1);
        for (int i = 0; i < kStages; ++i) barrier_init(&full[i], 1);
        barrier_init_visible();
        barrier_expect(&q_full, kQueryBytes);
        load_rows<D>(shared_q, &map_q, first_q, kQueries, &q_full);
        for (int tile = 0; tile < kStages && tile < tiles; ++tile) load_stage(tile);
    }
    __syncthreads();  // the barriers are there

    uint32_t own_q = shared_q + warpgroup * 64 * 128;
    int query = q0 + threadIdx.x / 32 * 16 + lane / 4;
    float result[D / 2] = {}, score[kKeys / 2];
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {}, shrink[2];
    uint32_t weight[kKeys / 16][4];
    Ring ring{0, 0};
    diagnose_timeline::Track track(warpgroup, threadIdx.x % 128 == 0);
    track.begin(Kind::barrier_wait);
    barrier_wait(&q_full, 0);
    for (int tile = 0; tile < tiles; ++tile, ring.next(kStages)) {
        uint32_t stage = stages + ring.slot * 2 * kTileBytes;
        track.begin(Kind::barrier_wait, tile);
        barrier_wait(&full[ring.slot], ring.parity);
        track.begin(Kind::wgmma_issue, tile);
        wgmma_fence();
        multiply_keys<D>(score, own_q, kQueries, stage);
        wgmma_commit();
        track.begin(Kind::wgmma_wait, tile);
        wgmma_wait<0>();
        pin(score);
        track.begin(Kind::user0, tile);
        if (Causal && tile == tiles - 1) mask_causal(score, query, tile * kKeys + lane % 4 * 2);
        softmax_step(score, largest, total, shrink, scale_log2);
        pack_weights(weight, score);
        rescale(result, shrink);
        pin(result);
        track.begin(Kind::wgmma_issue, tile);
        wgmma_fence();
        multiply_values<D>(result, weight, stage + kTileBytes);
        wgmma_commit();
        track.begin(Kind::wgmma_wait, tile);
        wgmma_wait<0>();
        pin(result);
        track.begin(Kind::barrier_wait, tile);
        __syncthreads();  // all have read this stage
        if (threadIdx.x == 0 && tile + kStages < tiles) {
            track.begin(Kind::tma_issue, tile);
            load_stage(tile + kStages);
        }
    }
    track.begin(Kind::epilogue);
    store_result<D>(out + size_t(first_q + warpgroup * 64) * D, result, total);
    track.end();
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    Attention attention(args);
    args.done();
    attention.fill();
    const AttentionShape& shape = attention.shape;
    int s = shape.s, d = shape.d;

    size_t rows = size_t(shape.heads()) * s;
    CUtensorMap map_q = panel_map(attention.q, rows, d, kQueries);
    CUtensorMap map_k = panel_map(attention.k, rows / shape.group(), d, kKeys);
    CUtensorMap map_v = panel_map(attention.v, rows / shape.group(), d, kKeys);
    auto kernel = d == 64 ? (attention.causal ? attention_tma<64, true> : attention_tma<64, false>)
                          : (attention.causal ? attention_tma<128, true> : attention_tma<128, false>);
    int bytes = d == 64 ? shared_bytes<64>() : shared_bytes<128>();
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    dim3 grid(s / kQueries, shape.heads());
    diagnose_timeline::start("attention_tma", {"warpgroup 0", "warpgroup 1"});
    diagnose_timeline::name(Kind::user0, "softmax");
    int code = attention.run("attention/tma", [&] {
        kernel<<<grid, kThreads, bytes>>>(map_q, map_k, map_v, attention.out, s, shape.group(), attention.scale_log2());
    });
    diagnose_timeline::write();
    return code;
}
