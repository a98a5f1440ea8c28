// Late-interaction retrieval: for each token of a query the largest dot product with any of the keys. A block holds 128 token
// rows (of one query) in shared memory and streams the keys, 128 at a time, through a ring filled by the copy engine.
// --form: pair (two warpgroups of 64 rows, all products of a key tile in one wgmma group), alone (one warpgroup with all 128 rows),
// step (alone, with a wait after every wgmma), narrow (pair, 16 keys a wgmma), single (pair, a ring of one slot).
#include <cuda_bf16.h>

#include "../hopper.cuh"
#include "h_harness.cuh"

using namespace hopper;

constexpr int kDim = 128, kRows = 128, kKeys = 128, kTile = 128 * kDim * 2, kHalf = kTile / 2;
enum Form { kGroup, kStep, kNarrow };

// d (64 x 16) = a b^T (+ d where `add`), bf16, both K-major.
__device__ __forceinline__ void wgmma_n16(float* d, uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "l"(a), "l"(b), "r"(add));
}

// GROUPS warpgroups compute, the last warp copies.
template <int STAGES, Form FORM, int GROUPS>
__global__ void __launch_bounds__(GROUPS * 128 + 32, 1) maxsim(const __grid_constant__ CUtensorMap queries, const __grid_constant__ CUtensorMap keys,
                                                 float* __restrict__ best, int tiles) {
    constexpr int kBlocks = 2 / GROUPS;  // blocks of 64 rows a warpgroup
    extern __shared__ unsigned char raw[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES], ready;
    uint32_t base = (address(raw) + 1023u) & ~1023u, ring = base + kTile;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], GROUPS * 4);
        }
        barrier_init(&ready, 1);
        barrier_init_visible();
    }
    __syncthreads();
    if (warp == GROUPS * 4) {
        if (lane != 0) return;
        barrier_expect(&ready, kTile);
        for (int h = 0; h < 2; ++h) tma_load(base + h * kHalf, &queries, &ready, h * 64, int(blockIdx.x) * kRows);
        for (int t = 0; t < tiles; ++t) {
            int s = t % STAGES;
            barrier_wait(&empty[s], ((t / STAGES) & 1) ^ 1);
            barrier_expect(&full[s], kTile);
            for (int h = 0; h < 2; ++h) tma_load(ring + s * kTile + h * kHalf, &keys, &full[s], h * 64, t * kKeys);
        }
        return;
    }
    float top[kBlocks][2], d[kBlocks][64];
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
        top[m][0] = top[m][1] = -INFINITY;
#pragma unroll
        for (int i = 0; i < 64; ++i) d[m][i] = 0;
    }
    const uint32_t own = base + warp / 4 * kBlocks * 64 * 128;
    barrier_wait(&ready, 0);
    for (int t = 0; t < tiles; ++t) {
        int s = t % STAGES;
        barrier_wait(&full[s], (t / STAGES) & 1);
        uint32_t tile = ring + s * kTile;
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) pin(d[m]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k) {
            uint32_t along = (k / 4) * kHalf + (k % 4) * 32;
#pragma unroll
            for (int m = 0; m < kBlocks; ++m) {
                uint64_t a = descriptor_128(own + along + m * 64 * 128);
                if constexpr (FORM == kNarrow) {
#pragma unroll
                    for (int j = 0; j < 8; ++j) wgmma_n16(&d[m][8 * j], a, descriptor_128(tile + along + j * 16 * 128), k > 0);
                } else {
                    Wgmma<Type::bf16, 128>::ss(d[m], a, descriptor_128(tile + along), k > 0);
                }
                if constexpr (FORM == kStep) {
                    wgmma_commit();
                    wgmma_wait<0>();
                    pin(d[m]);
                    wgmma_fence();
                }
            }
        }
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) pin(d[m]);
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[s]);
#pragma unroll
        for (int m = 0; m < kBlocks; ++m)
#pragma unroll
            for (int i = 0; i < 64; ++i) top[m][i / 2 % 2] = fmaxf(top[m][i / 2 % 2], d[m][i]);
    }
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float v = top[m][h];
            v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
            v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
            if (lane % 4 == 0) best[size_t(blockIdx.x) * kRows + (warp / 4 * kBlocks + m) * 64 + warp % 4 * 16 + lane / 4 + h * 8] = v;
        }
}

// One block a checked row.
__global__ void reference_maxsim(const __nv_bfloat16* q, const __nv_bfloat16* keys, double* best, const int* rows, int count) {
    __shared__ double tops[8];
    const __nv_bfloat16* row = q + size_t(rows[blockIdx.x]) * kDim;
    double top = -INFINITY;
    for (int j = threadIdx.x / 32; j < count; j += 8) {
        float sum = 0;  // 128 products of 16-bit values: FP32 is exact enough
        for (int i = threadIdx.x % 32; i < kDim; i += 32) sum += __bfloat162float(row[i]) * __bfloat162float(keys[size_t(j) * kDim + i]);
        for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        top = fmax(top, double(sum));
    }
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) top = fmax(top, tops[w]);
        best[blockIdx.x] = top;
    }
}

// Row `token` of each query of `tokens`; the rest of its 128 rows is padding (zero).
__global__ void clear_padding(__nv_bfloat16* q, size_t n, int tokens) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        if (int(i / kDim % kRows) >= tokens) q[i] = __float2bfloat16(0.0f);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string form = args.get_str("form", "pair");
    require(form == "pair" || form == "alone" || form == "step" || form == "narrow" || form == "single",
            "--form must be pair, alone, step, narrow or single, got " + form);
    int queries = positive(args, "queries", 132, 4096), tokens = positive(args, "tokens", kRows, kRows);
    int count = positive(args, "keys", 65536, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(count % kKeys == 0, "--keys must be a multiple of 128");
    size_t rows = size_t(queries) * kRows;
    auto *q = device_alloc<__nv_bfloat16>(rows * kDim), *k = device_alloc<__nv_bfloat16>(size_t(count) * kDim);
    float* best = device_alloc<float>(rows);
    fill_uniform(q, rows * kDim, key, -1.0f, 1.0f);
    fill_uniform(k, size_t(count) * kDim, key + 1, -1.0f, 1.0f);
    clear_padding<<<1056, 256>>>(q, rows * kDim, tokens);
    poison(best, rows * sizeof(float));
    auto maps = [&](const void* data, size_t n) {
        return matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, n, kDim, 128, 64, Swizzle::b128);
    };
    CUtensorMap query_map = maps(q, rows), key_map = maps(k, size_t(count));
    bool one = form == "alone" || form == "step";
    auto kernel = form == "pair"    ? maxsim<5, kGroup, 2>
                  : form == "alone" ? maxsim<5, kGroup, 1>
                  : form == "step"  ? maxsim<5, kStep, 1>
                  : form == "narrow" ? maxsim<5, kNarrow, 2>
                                     : maxsim<1, kGroup, 2>;
    // The ring of one slot asks for as much memory: one block a multiprocessor in all forms.
    size_t shared = size_t(kTile) * 6 + 1024;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
    auto launch = [&] { kernel<<<queries, one ? 160 : 288, shared>>>(query_map, key_map, best, count / kKeys); };
    launch_once(launch);

    constexpr int kChecked = 64;
    std::vector<int> checked(kChecked);
    for (int i = 0; i < kChecked; ++i)
        checked[i] = int(diagnose_hash(key + 100 + i) % queries) * kRows + int(diagnose_hash(key + 200 + i) % tokens);
    int* device_checked = device_alloc<int>(kChecked);
    double* device_ref = device_alloc<double>(kChecked);
    CHECK_CUDA(cudaMemcpy(device_checked, checked.data(), kChecked * sizeof(int), cudaMemcpyHostToDevice));
    reference_maxsim<<<kChecked, 256>>>(q, k, device_ref, device_checked, count);
    CHECK_CUDA(cudaGetLastError());
    std::vector<double> ref = to_host(device_ref, kChecked);
    std::vector<float> all = to_host(best, rows), out;
    for (int row : checked) out.push_back(all[row]);
    for (size_t i = 0; i < rows; ++i)  // padding scores exactly 0; NaN never passes
        require(int(i % kRows) < tokens ? all[i] > 0 : all[i] == 0, "row " + std::to_string(i) + " scores " + std::to_string(all[i]));
    double flops = 2.0 * queries * tokens * double(count) * kDim;
    return report("faults/m-maxsim", median_us(launch, reps), flops, 0, relative_error(out, ref), 1e-4);
}
