// Repeated sums C += A B^T in FP8 (e4m3) over tiles that stay in shared memory, C 64 x 128 a block: on mma.sync, which sm_90a
// does not have for FP8, or on wgmma, which multiplies FP8 itself.
#include <cuda_fp8.h>

#include "wgmma.cuh"
constexpr int kM = 64, kN = 128, kDepth = 128, kPitch = kDepth + 16;  // bytes a row; the pad spreads ldmatrix over the banks

__device__ __forceinline__ void mma_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__global__ void __launch_bounds__(128, 2) bytes_by_warp(const uint8_t* a, const uint8_t* b, float* c, int rounds) {
    extern __shared__ __align__(128) uint8_t shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < (kM + kN) * (kDepth / 16); i += blockDim.x) {
        int row = i / (kDepth / 16), part = i % (kDepth / 16) * 16;
        const uint8_t* from = row < kM ? a + (size_t(blockIdx.x) * kM + row) * kDepth : b + (row - kM) * kDepth;
        *reinterpret_cast<uint4*>(shared + row * kPitch + part) = *reinterpret_cast<const uint4*>(from + part);
    }
    __syncthreads();
    float acc[kN / 8][4] = {};
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll 1
        for (int k = 0; k < kDepth; k += 32) {
            uint32_t fa[4];
            ldmatrix4(fa, shared + (warp * 16 + lane % 16) * kPitch + k + lane / 16 * 16);
#pragma unroll
            for (int j = 0; j < kN / 8; j += 2) {
                uint32_t fb[4];
                ldmatrix4(fb, shared + (kM + j * 8 + lane % 8 + lane / 16 * 8) * kPitch + k + lane / 8 % 2 * 16);
                mma_e4m3(acc[j], fa, fb[0], fb[1]);
                mma_e4m3(acc[j + 1], fa, fb[2], fb[3]);
            }
        }
    float* to = c + (size_t(blockIdx.x) * kM + warp * 16 + lane / 4) * kN + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(acc[j][0], acc[j][1]);
        *reinterpret_cast<float2*>(to + j * 8 + 8 * kN) = make_float2(acc[j][2], acc[j][3]);
    }
}

__device__ void place(uint8_t* to, const uint8_t* from, int rows) {
    for (int i = threadIdx.x; i < rows * (kDepth / 16); i += blockDim.x) {
        int row = i % rows, part = i / rows;
        *reinterpret_cast<uint4*>(to + part * rows * 16 + row * 16) = *reinterpret_cast<const uint4*>(from + row * kDepth + part * 16);
    }
}
__global__ void __launch_bounds__(128, 2) bytes_by_group(const uint8_t* a, const uint8_t* b, float* c, int rounds) {
    extern __shared__ __align__(128) uint8_t shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    place(shared, a + size_t(blockIdx.x) * kM * kDepth, kM);
    place(shared + kM * kDepth, b, kN);
    operands_visible();
    __syncthreads();
    uint64_t da = operand(shared, kM * 16, 128), db = operand(shared + kM * kDepth, kN * 16, 128);
    float acc[kN / 2] = {};
    for (int r = 0; r < rounds; ++r) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kDepth / 32; ++s) wgmma_n128_fp8(acc, da + s * 2 * kM, db + s * 2 * kN);
        wgmma_commit();
        wgmma_wait<0>();
    }
    float* to = c + (size_t(blockIdx.x) * kM + warp * 16 + lane / 4) * kN + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(acc[4 * j], acc[4 * j + 1]);
        *reinterpret_cast<float2*>(to + j * 8 + 8 * kN) = make_float2(acc[4 * j + 2], acc[4 * j + 3]);
    }
}

// Uniform in [-1, 1), rounded to e4m3; the rounded values stay on the host for the reference.
static std::vector<float> fill_e4m3(uint8_t* dev, size_t n, unsigned long long key) {
    float* wide = device_alloc<float>(n);
    fill_uniform(wide, n, key, -1.f, 1.f);
    auto host = to_host(wide, n);
    CHECK_CUDA(cudaFree(wide));
    std::vector<uint8_t> bytes(n);
    for (size_t i = 0; i < n; ++i) {
        __nv_fp8_e4m3 v(host[i]);
        bytes[i] = v.__x, host[i] = float(v);
    }
    CHECK_CUDA(cudaMemcpy(dev, bytes.data(), n, cudaMemcpyHostToDevice));
    return host;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int tiles = int(args.get("tiles", 4224)), rounds = int(args.get("rounds", 32)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(tiles > 0 && rounds > 0, "--tiles and --rounds must be positive");
    size_t na = size_t(tiles) * kM * kDepth, nc = size_t(tiles) * kM * kN;
    uint8_t *a = device_alloc<uint8_t>(na), *b = device_alloc<uint8_t>(kN * kDepth);
    float* c = device_alloc<float>(nc);
    auto ha = fill_e4m3(a, na, key), hb = fill_e4m3(b, kN * kDepth, key + 1);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int e = 0; e < kDepth; ++e) sum += double(ha[i / kN * kDepth + e]) * double(hb[i % kN * kDepth + e]);
        return sum * rounds;
    };
    size_t padded = (kM + kN) * kPitch, plain = (kM + kN) * kDepth;
    allow_smem(bytes_by_warp, padded);
    allow_smem(bytes_by_group, plain);
    auto launch = [&] {
        if (fault) bytes_by_warp<<<tiles, 128, padded>>>(a, b, c, rounds);
        else bytes_by_group<<<tiles, 128, plain>>>(a, b, c, rounds);
    };
    // FP8 wgmma keeps about 14 bits of its running sum: the tolerance is that of the hardware, not of the code.
    return run_checked(fault ? "faults/bytes-by-warp" : "faults/bytes-by-group", reps, launch, c, nc, reference,
                       2.0 * nc * kDepth * rounds, 1.0 * na + 4.0 * nc, 3e-2);
}
