// X <- 2^(X W + bias), repeated: 128 rows of 64 a warpgroup in registers, W (64 x 64) in shared memory. All warpgroups multiply,
// then all exponentiate, with a barrier between; or each goes on by itself, and while one multiplies others exponentiate. A phase is
// a turn of a loop with two branches: in straight code the compiler moves exponentials across the barrier, and the phases are gone.
#include <cuda_bf16.h>

#include "../hopper.cuh"
#include "pair.cuh"

constexpr int kSize = 64, kTiles = 2, kWarpgroups = 4, kThreads = kWarpgroups * 128, kRows = kWarpgroups * kTiles * 64;

__device__ __forceinline__ float exp2_fast(float v) {
    float r;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t*>(&v);
}
__device__ __forceinline__ void meet() { asm volatile("bar.sync 0;" ::: "memory"); }

template <bool InStep>
__device__ __forceinline__ void map(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups) {
    // W is [n][k]: rows of 128 bytes, whose 16-byte pieces are swizzled as wgmma expects.
    __shared__ __align__(1024) uint4 shared_w[kSize * kSize / 8];
    for (int i = threadIdx.x; i < kSize * kSize / 8; i += kThreads)
        shared_w[i / 8 * 8 + (i % 8 ^ i / 8 % 8)] = reinterpret_cast<const uint4*>(w)[i];
    hopper::shared_visible_to_async();
    __syncthreads();
    uint64_t b = hopper::descriptor_128(hopper::address(shared_w));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        size_t row = size_t(group) * kRows + warp / 4 * kTiles * 64 + warp % 4 * 16 + lane / 4;
        float start[kTiles][2], s[kTiles][32];
        uint32_t x[kTiles][4][4];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
            start[i][0] = bias[row + i * 64], start[i][1] = bias[row + i * 64 + 8];
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int e = 0; e < 4; ++e) x[i][k][e] = 0x3f803f80u;  // X starts at 1
        }
#pragma unroll 1
        for (int phase = 0; phase < 2 * steps; ++phase) {
            if (phase % 2 == 0) {
#pragma unroll
                for (int i = 0; i < kTiles; ++i)
#pragma unroll
                    for (int e = 0; e < 32; ++e) s[i][e] = start[i][e % 4 / 2];
                hopper::pin(s[0]), hopper::pin(s[1]);
                hopper::wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int i = 0; i < kTiles; ++i)
                        hopper::Wgmma<hopper::Type::bf16, kSize>::rs(s[i], x[i][k], hopper::advance(b, k * 32), 1);
                hopper::wgmma_commit();
                hopper::wgmma_wait<0>();
                hopper::pin(s[0]), hopper::pin(s[1]);
            } else {
#pragma unroll
                for (int i = 0; i < kTiles; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) {
#pragma unroll
                        for (int e = 0; e < 4; ++e) s[i][j * 4 + e] = exp2_fast(s[i][j * 4 + e]);
                        // Column tile j of D is half of k-step j / 2 of the next A.
                        x[i][j / 2][j % 2 * 2] = pack(s[i][j * 4], s[i][j * 4 + 1]);
                        x[i][j / 2][j % 2 * 2 + 1] = pack(s[i][j * 4 + 2], s[i][j * 4 + 3]);
                    }
            }
            if (InStep) meet();
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float* to = out + (row + i * 64) * kSize + j * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(to) = make_float2(s[i][j * 4], s[i][j * 4 + 1]);
                *reinterpret_cast<float2*>(to + 8 * kSize) = make_float2(s[i][j * 4 + 2], s[i][j * 4 + 3]);
            }
    }
}
__global__ void __launch_bounds__(kThreads, 1) map_in_step(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups) {
    map<true>(w, bias, out, steps, groups);
}
__global__ void __launch_bounds__(kThreads, 1) map_in_turns(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups) {
    map<false>(w, bias, out, steps, groups);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int groups = int(args.get("groups", 264)), steps = int(args.get("steps", 128)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(groups > 0 && steps > 0, "--groups and --steps must be positive");
    size_t rows = size_t(groups) * kRows, n = rows * kSize;
    auto* w = device_alloc<__nv_bfloat16>(kSize * kSize);
    float *bias = device_alloc<float>(rows), *out = device_alloc<float>(n);
    fill_uniform(w, kSize * kSize, key, -0.02f, 0.02f);  // small: the map contracts, and rounding does not grow
    fill_uniform(bias, rows, key + 1, -1.f, 1.f);
    auto hw = to_host(w, kSize * kSize);
    auto hb = to_host(bias, rows);
    std::vector<double> x(kSize), y(kSize);
    size_t held = SIZE_MAX;
    auto rounded = [](double v) { return double(__bfloat162float(__float2bfloat16_rn(float(v)))); };
    auto reference = [&](size_t i) {
        if (i / kSize != held) {
            held = i / kSize;
            std::fill(x.begin(), x.end(), 1.0);
            for (int s = 0; s < steps; ++s) {
                for (int j = 0; j < kSize; ++j) {
                    double sum = hb[held];
                    for (int k = 0; k < kSize; ++k) sum += rounded(x[k]) * double(__bfloat162float(hw[j * kSize + k]));
                    y[j] = std::exp2(sum);
                }
                x.swap(y);
            }
        }
        return x[i % kSize];
    };
    int blocks = std::min(sm_count(), groups);
    auto launch = [&] {
        if (fault) map_in_step<<<blocks, kThreads>>>(w, bias, out, steps, groups);
        else map_in_turns<<<blocks, kThreads>>>(w, bias, out, steps, groups);
    };
    return run_checked(fault ? "faults/map-in-step" : "faults/map-in-turns", reps, launch, out, n, reference,
                       (2.0 * kSize + 1) * n * steps, 4.0 * (n + rows), 5e-3, 256);
}
