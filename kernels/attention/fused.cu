// Attention in one pass: scores stay in registers, softmax is kept online, bf16 on the warp-level Tensor path.
// diagnose: expect legacy-mma
//
// Four warps of 32 query rows. With 16 rows a warp the reads of K and V would fill shared memory before the Tensor pipe.
#include "../mma.cuh"
#include "check.cuh"

constexpr int kQueries = 128, kKeys = 64, kThreads = 128;

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Rows of D bf16; chunk c (16 bytes) of row r lies at chunk c ^ (r % 8), so that ldmatrix meets no bank twice.
template <int D, int Rows>
__device__ inline void copy_tile(uint32_t target, const __nv_bfloat16* source) {
    constexpr int kChunks = D / 8, kStep = kThreads / kChunks;
    // Opaque: computed afresh for every tile instead of kept in registers, of which D = 128 has none to spare.
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    unsigned row = thread / kChunks, chunk = thread % kChunks;
    target += row * D * 2 + (chunk ^ (row % 8)) * 16;
    source += row * D + chunk * 8;
#pragma unroll
    for (int i = 0; i < Rows / kStep; ++i) copy_async_16(target + i * kStep * D * 2, source + i * kStep * D);
}

template <int D, bool Causal>
__global__ void __launch_bounds__(kThreads, 2)
    attention_fused(const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
                    const __nv_bfloat16* __restrict__ v, __nv_bfloat16* __restrict__ out, int s, float scale_log2) {
    constexpr int kRow = D * 2, kTileBytes = kKeys * kRow;
    extern __shared__ __align__(128) unsigned char shared[];
    uint32_t shared_q = shared_address(shared);
    uint32_t shared_k = shared_q + kQueries * kRow;  // two stages of K, then two of V
    uint32_t shared_v = shared_k + 2 * kTileBytes;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // The longest causal blocks start first.
    int q0 = int(Causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * kQueries;
    size_t head = size_t(blockIdx.y) * s * D;
    int tiles = (Causal ? q0 + kQueries : s) / kKeys;

    copy_tile<D, kQueries>(shared_q, q + head + size_t(q0) * D);
    copy_tile<D, kKeys>(shared_k, k + head);
    copy_tile<D, kKeys>(shared_v, v + head);
    copy_commit();

    // Where this lane points ldmatrix: rows of Q and V come in order, K's matrices run along d first.
    uint32_t swizzled = (lane / 16 ^ lane % 8) * 16;
    uint32_t lane_q = shared_q + (warp * 32 + lane % 16) * kRow + swizzled;
    uint32_t lane_k = shared_k + (lane % 8 + lane / 16 * 8) * kRow + (lane / 8 % 2 ^ lane % 8) * 16;
    uint32_t lane_v = shared_v + lane % 16 * kRow + swizzled;
    // 16 columns are 32 bytes; below 128 bytes the swizzle makes the step an exclusive or (all rows are 128-aligned).
    auto at_column = [](uint32_t address, int i) { return (address ^ (i * 32 % 128)) + i * 32 / 128 * 128; };

    float result[2][D / 8][4] = {};
    float largest[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    float total[2][2] = {};

    for (int tile = 0; tile < tiles; ++tile) {
        copy_wait<0>();
        __syncthreads();  // this tile is there for all, and all have left the stage that the next copy overwrites
        uint32_t stage = tile % 2 * kTileBytes;
        if (tile + 1 < tiles) {
            int next = (tile + 1) * kKeys * D;
            copy_tile<D, kKeys>(shared_k + (kTileBytes - stage), k + head + next);
            copy_tile<D, kKeys>(shared_v + (kTileBytes - stage), v + head + next);
            copy_commit();
        }

        float score[2][kKeys / 8][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            uint32_t a[2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m) ldmatrix(a[m], at_column(lane_q, i) + m * 16 * kRow);
#pragma unroll
            for (int j = 0; j < kKeys / 16; ++j) {
                uint32_t b[4];
                ldmatrix(b, at_column(lane_k + stage, i) + j * 16 * kRow);
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    mma(score[m][2 * j], a[m], b[0], b[1]);
                    mma(score[m][2 * j + 1], a[m], b[2], b[3]);
                }
            }
        }

        if (Causal && (tile + 1) * kKeys > q0) {
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        int query = q0 + warp * 32 + m * 16 + e / 2 * 8 + lane / 4;
                        int key = tile * kKeys + j * 8 + lane % 4 * 2 + e % 2;
                        if (key > query) score[m][j][e] = -INFINITY;
                    }
        }

        uint32_t weight[2][kKeys / 16][4];
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float peak = largest[m][h];
#pragma unroll
                for (int j = 0; j < kKeys / 8; ++j)
                    peak = fmaxf(peak, fmaxf(score[m][j][2 * h], score[m][j][2 * h + 1]));
                peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
                peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
                // Finite from the first tile on, as every query sees key 0.
                float shrink = exp2_fast((largest[m][h] - peak) * scale_log2);
                float shift = peak * scale_log2;
                largest[m][h] = peak;
                float sum = 0;
#pragma unroll
                for (int j = 0; j < kKeys / 8; ++j) {
                    float p0 = exp2_fast(score[m][j][2 * h] * scale_log2 - shift);
                    float p1 = exp2_fast(score[m][j][2 * h + 1] * scale_log2 - shift);
                    sum += p0 + p1;
                    // The accumulator of Q K^T is, packed, the first operand of P V: no exchange between lanes.
                    weight[m][j / 2][j % 2 * 2 + h] = pack_bf16(p0, p1);
                }
                total[m][h] = total[m][h] * shrink + sum;
#pragma unroll
                for (int j = 0; j < D / 8; ++j) {
                    result[m][j][2 * h] *= shrink;
                    result[m][j][2 * h + 1] *= shrink;
                }
            }

        // Columns outside, keys inside: the other order spills.
#pragma unroll
        for (int j = 0; j < D / 16; ++j)
#pragma unroll
            for (int i = 0; i < kKeys / 16; ++i) {
                uint32_t b[4];
                ldmatrix_transposed(b, at_column(lane_v + stage, j) + i * 16 * kRow);
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    mma(result[m][2 * j], weight[m][i], b[0], b[1]);
                    mma(result[m][2 * j + 1], weight[m][i], b[2], b[3]);
                }
            }
    }

#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float sum = total[m][h];  // of this lane's columns so far
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float inverse = 1.f / sum;
            __nv_bfloat16* row = out + head + size_t(q0 + warp * 32 + m * 16 + h * 8 + lane / 4) * D;
#pragma unroll
            for (int j = 0; j < D / 8; j += 2)
                store_row_16(row + j * 8, pack_bf16(result[m][j][2 * h] * inverse, result[m][j][2 * h + 1] * inverse),
                             pack_bf16(result[m][j + 1][2 * h] * inverse, result[m][j + 1][2 * h + 1] * inverse), lane);
        }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    AttentionShape shape(args, 4096, 128);
    long long causal = args.get("causal", 0);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    int s = shape.s, d = shape.d;
    require(s % kQueries == 0, "--s must be a multiple of 128");
    require(shape.group() == 1, "--kv_heads must be --h here: D = 128 has no register left for a second offset");
    require(causal == 0 || causal == 1, "--causal must be 0 or 1");

    size_t n = shape.elements();
    auto* q = device_alloc<__nv_bfloat16>(n);
    auto* k = device_alloc<__nv_bfloat16>(n);
    auto* v = device_alloc<__nv_bfloat16>(n);
    auto* out = device_alloc<__nv_bfloat16>(n);
    fill_uniform(q, n, key, -4, 4);
    fill_uniform(k, n, key + 1, -1, 1);
    fill_uniform(v, n, key + 2, -1, 1);
    poison(out, n * sizeof(*out));

    auto kernel = d == 64 ? (causal ? attention_fused<64, true> : attention_fused<64, false>)
                          : (causal ? attention_fused<128, true> : attention_fused<128, false>);
    int bytes = (kQueries + 4 * kKeys) * d * 2;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    dim3 grid(s / kQueries, shape.heads());
    float scale_log2 = float(1.4426950408889634 / std::sqrt(double(d)));
    auto launch = [&] { kernel<<<grid, kThreads, bytes>>>(q, k, v, out, s, scale_log2); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = attention_error(q, k, v, out, shape.heads(), s, d, causal, false, key + 3);
    // bf16 rounding of the weights and of the output costs about 2e-3.
    return report("attention/fused", median_us(launch, runs), 4 * shape.scores(causal) * d, 8.0 * n, error, 6e-3);
}
