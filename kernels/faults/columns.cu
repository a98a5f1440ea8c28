// Repeated sums C += A_s B_s^T over tiles that stay in shared memory (C is 64 x 256 a block): 256 columns come as 32
// instructions of 8 columns, each reading A again, or as one of 256.
#include "wgmma.cuh"
using bf16 = __nv_bfloat16;
constexpr int kM = 64, kN = 256, kDepth = 128, kSteps = kDepth / 16;
constexpr int kBytesA = kM * kDepth * 2, kBytesB = kN * kDepth * 2;

// Row-major global rows of kDepth values to core matrices: chunk c of row r lies at c rows*16 + r*16.
__device__ void place(char* to, const bf16* from, int rows) {
    for (int i = threadIdx.x; i < rows * (kDepth / 8); i += blockDim.x) {
        int row = i % rows, part = i / rows;
        *reinterpret_cast<uint4*>(to + part * rows * 16 + row * 16) = *reinterpret_cast<const uint4*>(from + row * kDepth + part * 8);
    }
}

template <bool NARROW>
__device__ __forceinline__ void columns(const bf16* a, const bf16* b, float* c, int rounds) {
    extern __shared__ __align__(128) char shared[];
    char *as = shared, *bs = shared + kBytesA;
    place(as, a + size_t(blockIdx.x) * kM * kDepth, kM);
    place(bs, b, kN);
    operands_visible();
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t da = operand(as, kM * 16, 128), db = operand(bs, kN * 16, 128);  // a step or a column block adds its bytes / 16
    float* to = c + (size_t(blockIdx.x) * kM + warp * 16 + lane / 4) * kN + lane % 4 * 2;
    if constexpr (NARROW) {
        float acc[kN / 8][4] = {};
        for (int r = 0; r < rounds; ++r) {
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < kSteps; ++s)
#pragma unroll
                for (int j = 0; j < kN / 8; ++j)
                    wgmma_n8(acc[j], da + s * 2 * kM, db + s * 2 * kN + j * 8);
            wgmma_commit();
            wgmma_wait<0>();
        }
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
            *reinterpret_cast<float2*>(to + j * 8) = make_float2(acc[j][0], acc[j][1]);
            *reinterpret_cast<float2*>(to + j * 8 + 8 * kN) = make_float2(acc[j][2], acc[j][3]);
        }
    } else {
        float acc[kN / 2] = {};
        for (int r = 0; r < rounds; ++r) {
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < kSteps; ++s)
                wgmma_n256(acc, da + s * 2 * kM, db + s * 2 * kN);
            wgmma_commit();
            wgmma_wait<0>();
        }
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
            *reinterpret_cast<float2*>(to + j * 8) = make_float2(acc[4 * j], acc[4 * j + 1]);
            *reinterpret_cast<float2*>(to + j * 8 + 8 * kN) = make_float2(acc[4 * j + 2], acc[4 * j + 3]);
        }
    }
}
__global__ void __launch_bounds__(128, 2) columns_by_eight(const bf16* a, const bf16* b, float* c, int rounds) { columns<true>(a, b, c, rounds); }
__global__ void __launch_bounds__(128, 2) columns_at_once(const bf16* a, const bf16* b, float* c, int rounds) { columns<false>(a, b, c, rounds); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int tiles = int(args.get("tiles", 1056)), rounds = int(args.get("rounds", 64)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(tiles > 0 && rounds > 0, "--tiles and --rounds must be positive");
    size_t na = size_t(tiles) * kM * kDepth, nc = size_t(tiles) * kM * kN;
    bf16 *a = device_alloc<bf16>(na), *b = device_alloc<bf16>(kN * kDepth);
    float* c = device_alloc<float>(nc);
    fill_uniform(a, na, key, -1.f, 1.f);
    fill_uniform(b, kN * kDepth, key + 1, -1.f, 1.f);
    auto ha = to_host(a, na), hb = to_host(b, kN * kDepth);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int e = 0; e < kDepth; ++e) sum += double(__bfloat162float(ha[i / kN * kDepth + e])) * double(__bfloat162float(hb[i % kN * kDepth + e]));
        return sum * rounds;
    };
    size_t bytes = kBytesA + kBytesB;
    allow_smem(columns_by_eight, bytes);
    allow_smem(columns_at_once, bytes);
    auto launch = [&] {
        if (fault) columns_by_eight<<<tiles, 128, bytes>>>(a, b, c, rounds);
        else columns_at_once<<<tiles, 128, bytes>>>(a, b, c, rounds);
    };
    return run_checked(fault ? "faults/columns-by-eight" : "faults/columns-at-once", reps, launch, c, nc, reference,
                       2.0 * nc * kDepth * rounds, 2.0 * na + 4.0 * nc, 2e-3);
}
