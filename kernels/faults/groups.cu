// The largest product of each row of A with any row of B (bf16, 128 long) on wgmma: one warpgroup an SM keeps 512 rows of A and
// streams B in tiles of 128. It waits after each instruction, or takes the maxima of one group while the next multiplies.
#include "wgmma.cuh"
using bf16 = __nv_bfloat16;
constexpr int kRows = 512, kCols = 128, kDepth = 128, kUnits = kRows / 64, kStages = 2;
constexpr int kHeld = kRows * kDepth * 2, kStage = kCols * kDepth * 2;  // bytes

// A and B are stored packed, each tile in the order of its core matrices: 16 bytes of every row, then the next 16. With rows
// in memory, the halves of a 32-byte sector would go to two places, and cp.async would fetch the sector twice.
template <int ROWS>
__host__ __device__ size_t packed(size_t row, int e) {
    return row / ROWS * ROWS * kDepth + size_t(e / 8) * ROWS * 8 + row % ROWS * 8 + e % 8;
}
template <int ROWS>
__device__ __forceinline__ void fetch(char* to, const bf16* tile) {
#pragma unroll 16
    for (int q = threadIdx.x; q < ROWS * kDepth / 8; q += 128) copy16(to + q * 16, tile + q * 8);
}

// Accumulators 4 j and 4 j + 1 are of the thread's upper row, the two others of the row eight below.
__device__ __forceinline__ void take(const float (&acc)[64], float (&best)[2]) {
    float m[4] = {acc[0], acc[1], acc[2], acc[3]};
#pragma unroll
    for (int j = 4; j < 64; ++j) m[j % 4] = fmaxf(m[j % 4], acc[j]);
    best[0] = fmaxf(best[0], fmaxf(m[0], m[1]));
    best[1] = fmaxf(best[1], fmaxf(m[2], m[3]));
}

template <bool EACH>
__device__ __forceinline__ void largest(const bf16* a, const bf16* b, float* out, int n) {
    extern __shared__ __align__(128) char shared[];
    float acc[2][64], best[kUnits][2];
#pragma unroll
    for (int i = 0; i < 64; ++i) acc[0][i] = acc[1][i] = -INFINITY;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) best[u][0] = best[u][1] = -INFINITY;
    fetch<kRows>(shared, a + size_t(blockIdx.x) * kRows * kDepth);
    fetch<kCols>(shared + kHeld, b);
    copy_commit();
#pragma unroll 1
    for (int tile = 0; tile * kCols < n; ++tile) {
        copy_wait<0>();
        operands_visible();
        __syncthreads();
        uint64_t da = operand(shared, kRows * 16, 128), db = operand(shared + kHeld + tile % kStages * kStage, kCols * 16, 128);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
            float(&now)[64] = acc[u % 2];
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kDepth / 16; ++step) {
                uint64_t ra = da + u * 64 + step * 2 * kRows, rb = db + step * 2 * kCols;  // in units of 16 bytes
                if (step == 0) wgmma_n128<0>(now, ra, rb);
                else wgmma_n128<1>(now, ra, rb);
                if (EACH) {
                    wgmma_commit();
                    wgmma_wait<0>();
                }
            }
            if (EACH) {
                take(now, best[u]);
            } else {
                wgmma_commit();
            }
            if (u == 1) {
                // The other slot: all warps have seen the last group that read it end. The last tile is fetched again, unused.
                int next = min(tile + 1, n / kCols - 1);
                fetch<kCols>(shared + kHeld + (tile + 1) % kStages * kStage, b + size_t(next) * kCols * kDepth);
                copy_commit();
            }
            if (!EACH && u > 0) {
                wgmma_wait<1>();
                take(acc[(u + 1) % 2], best[u - 1]);
            }
        }
        if (!EACH) {
            wgmma_wait<0>();
            take(acc[(kUnits - 1) % 2], best[kUnits - 1]);
        }
    }
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float v = best[u][h];
            v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
            v = fmaxf(v, __shfl_xor_sync(~0u, v, 2));
            if (lane % 4 == 0) out[size_t(blockIdx.x) * kRows + u * 64 + threadIdx.x / 32 * 16 + h * 8 + lane / 4] = v;
        }
}
__global__ void __launch_bounds__(128, 1) product_stepwise(const bf16* a, const bf16* b, float* out, int n) { largest<true>(a, b, out, n); }
__global__ void __launch_bounds__(128, 1) product_grouped(const bf16* a, const bf16* b, float* out, int n) { largest<false>(a, b, out, n); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int m = int(args.get("m", 67584)), n = int(args.get("n", 16384)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(m > 0 && n > 0 && m % kRows == 0 && n % kCols == 0, "--m must be a multiple of 512, --n of 128");
    bf16 *a = device_alloc<bf16>(size_t(m) * kDepth), *b = device_alloc<bf16>(size_t(n) * kDepth);
    float* out = device_alloc<float>(m);
    fill_uniform(a, size_t(m) * kDepth, key, -1.f, 1.f);
    fill_uniform(b, size_t(n) * kDepth, key + 1, -1.f, 1.f);
    auto ha = to_host(a, size_t(m) * kDepth), hb = to_host(b, size_t(n) * kDepth);
    std::vector<float> fb(hb.size());
    for (int j = 0; j < n; ++j)
        for (int e = 0; e < kDepth; ++e) fb[size_t(j) * kDepth + e] = __bfloat162float(hb[packed<kCols>(j, e)]);
    auto reference = [&](size_t i) {
        float x[kDepth];
        for (int e = 0; e < kDepth; ++e) x[e] = __bfloat162float(ha[packed<kRows>(i, e)]);
        double best = -INFINITY;
        for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int e = 0; e < kDepth; ++e) sum += double(x[e]) * double(fb[size_t(j) * kDepth + e]);
            best = std::max(best, sum);
        }
        return best;
    };
    size_t bytes = kHeld + kStages * kStage;
    allow_smem(product_stepwise, bytes);
    allow_smem(product_grouped, bytes);
    auto launch = [&] {
        if (fault) product_stepwise<<<m / kRows, 128, bytes>>>(a, b, out, n);
        else product_grouped<<<m / kRows, 128, bytes>>>(a, b, out, n);
    };
    return run_checked(fault ? "faults/product-stepwise" : "faults/product-grouped", reps, launch, out, m, reference,
                       2.0 * m * n * kDepth, 2.0 * kDepth * (m + n) + 4.0 * m, 1e-3, 256);
}
