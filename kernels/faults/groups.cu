// C = A B^T in bf16 on wgmma: one warpgroup an SM computes 128 x 128 from a ring of six stages that cp.async fills; it waits
// after each instruction, or lets a stage's eight run as one group while the next stage is being set up.
#include "wgmma.cuh"
using bf16 = __nv_bfloat16;
constexpr int kRows = 128, kDepth = 64, kStages = 6, kAhead = 4;
constexpr int kOperand = kRows * kDepth * 2, kStage = 2 * kOperand;  // bytes
constexpr int kAlongK = kRows * 16, kAlongRows = 128;                // distances of core matrices

template <bool EACH>
__device__ __forceinline__ void product(const bf16* a, const bf16* b, float* c, int n, int k) {
    extern __shared__ __align__(128) char shared[];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float acc[2][64] = {};
    // A warp's 32 lanes take 8 rows x 4 chunks: 64 bytes of each row from memory, and 8 different bank groups in shared memory.
    auto load = [&](int tile) {
        if (tile * kDepth < k) {
            char* stage = shared + tile % kStages * kStage;
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                int part = lane / 8 + q % 2 * 4, row = lane % 8 + (q / 2 * 4 + warp) * 8;
                int at = part * kAlongK + row * 16;  // row / 8 * 128 + row % 8 * 16
                copy16(stage + at, a + (size_t(blockIdx.y) * kRows + row) * k + tile * kDepth + part * 8);
                copy16(stage + kOperand + at, b + (size_t(blockIdx.x) * kRows + row) * k + tile * kDepth + part * 8);
            }
        }
        copy_commit();
    };
    for (int s = 0; s < kAhead; ++s) load(s);
    for (int tile = 0; tile * kDepth < k; ++tile) {
        copy_wait<kAhead - 1>();
        operands_visible();
        __syncthreads();
        // The slot filled now was last read two tiles ago, and the wait below has seen that tile's group end.
        load(tile + kAhead);
        const char* stage = shared + tile % kStages * kStage;
        uint64_t da = operand(stage, kAlongK, kAlongRows), db = operand(stage + kOperand, kAlongK, kAlongRows);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kDepth / 16; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                wgmma_n128(acc[half], da + (step * 2 * kAlongK + half * 64 * 16) / 16, db + step * 2 * kAlongK / 16);
                if (EACH) {
                    wgmma_commit();
                    wgmma_wait<0>();
                }
            }
        }
        if (!EACH) {
            wgmma_commit();
            wgmma_wait<1>();
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            float* to = c + (size_t(blockIdx.y) * kRows + half * 64 + warp * 16 + lane / 4) * n + blockIdx.x * kRows + j * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(acc[half][4 * j], acc[half][4 * j + 1]);
            *reinterpret_cast<float2*>(to + size_t(8) * n) = make_float2(acc[half][4 * j + 2], acc[half][4 * j + 3]);
        }
}
__global__ void __launch_bounds__(128, 1) product_stepwise(const bf16* a, const bf16* b, float* c, int n, int k) { product<true>(a, b, c, n, k); }
__global__ void __launch_bounds__(128, 1) product_grouped(const bf16* a, const bf16* b, float* c, int n, int k) { product<false>(a, b, c, n, k); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int m = int(args.get("m", 4224)), n = int(args.get("n", 4096)), k = int(args.get("k", 2048)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(m > 0 && n > 0 && k > 0 && m % 128 == 0 && n % 128 == 0 && k % 64 == 0, "--m and --n must be multiples of 128, --k of 64");
    bf16 *a = device_alloc<bf16>(size_t(m) * k), *b = device_alloc<bf16>(size_t(n) * k);
    float* c = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1.f, 1.f);
    fill_uniform(b, size_t(n) * k, key + 1, -1.f, 1.f);
    auto ha = to_host(a, size_t(m) * k), hb = to_host(b, size_t(n) * k);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int e = 0; e < k; ++e) sum += double(__bfloat162float(ha[i / n * k + e])) * double(__bfloat162float(hb[i % n * k + e]));
        return sum;
    };
    size_t bytes = kStages * kStage;
    allow_smem(product_stepwise, bytes);
    allow_smem(product_grouped, bytes);
    auto launch = [&] {
        dim3 grid(n / 128, m / 128);
        if (fault) product_stepwise<<<grid, 128, bytes>>>(a, b, c, n, k);
        else product_grouped<<<grid, 128, bytes>>>(a, b, c, n, k);
    };
    return run_checked(fault ? "faults/product-stepwise" : "faults/product-grouped", reps, launch, c, size_t(m) * n, reference,
                       2.0 * m * n * k, 2.0 * k * (m + n) + 4.0 * m * n, 1e-3);
}
