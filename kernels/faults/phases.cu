// X <- 2^(X W + bias), repeated: 32 rows of 64 a warp, W (64 x 64) in registers. All warps multiply, then all exponentiate,
// with a barrier between; or half of the warps are one phase behind the others. A phase is a turn of a loop with two branches:
// in straight code the compiler moves multiplications across the barrier, into the exponentials, and the phases are gone.
#include "tensor.cuh"
constexpr int kSize = 64, kRows = 32, kWarps = 8;

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

// `shift`: phases by which the second half of the warps is behind.
__device__ __forceinline__ void phases(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups, int shift) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t fw[4][8][2];  // B fragments: W is [n][k], so a register is two neighbours of k
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                fw[k][j][h] = *reinterpret_cast<const uint32_t*>(w + (j * 8 + lane / 4) * kSize + k * 16 + h * 8 + lane % 4 * 2);
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        size_t row = (size_t(group) * kWarps + warp) * kRows + lane / 4;
        float start[2][2] = {{bias[row], bias[row + 8]}, {bias[row + 16], bias[row + 24]}}, s[2][8][4];
        uint32_t x[2][4][4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int e = 0; e < 4; ++e) x[i][k][e] = 0x3f803f80u;  // X starts at 1
        int late = warp < kWarps / 2 ? 0 : shift;
#pragma unroll 1
        for (int phase = -late; phase < 2 * steps + shift - late; ++phase) {  // the same number of turns for every warp
            if (phase < 0 || phase >= 2 * steps) {
            } else if (phase % 2 == 0) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) s[i][j][0] = s[i][j][1] = start[i][0], s[i][j][2] = s[i][j][3] = start[i][1];
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
#pragma unroll
                        for (int j = 0; j < 8; ++j) mma_bf16(s[i][j], x[i][k], fw[k][j]);
            } else {
#pragma unroll
                for (int i = 0; i < 2; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) {
#pragma unroll
                        for (int e = 0; e < 4; ++e) s[i][j][e] = exp2_fast(s[i][j][e]);
                        // Column tile j of D is half of k-step j / 2 of the next A.
                        x[i][j / 2][j % 2 * 2] = pack(s[i][j][0], s[i][j][1]);
                        x[i][j / 2][j % 2 * 2 + 1] = pack(s[i][j][2], s[i][j][3]);
                    }
            }
            meet();
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float* to = out + (row + i * 16) * kSize + j * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(to) = make_float2(s[i][j][0], s[i][j][1]);
                *reinterpret_cast<float2*>(to + 8 * kSize) = make_float2(s[i][j][2], s[i][j][3]);
            }
    }
}
__global__ void __launch_bounds__(256, 1) map_in_step(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups, int shift) {
    phases(w, bias, out, steps, groups, shift);
}
__global__ void __launch_bounds__(256, 1) map_in_turns(const __nv_bfloat16* w, const float* bias, float* out, int steps, int groups, int shift) {
    phases(w, bias, out, steps, groups, shift);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int groups = int(args.get("groups", 528)), steps = int(args.get("steps", 128)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(groups > 0 && steps > 0, "--groups and --steps must be positive");
    size_t rows = size_t(groups) * kWarps * kRows, n = rows * kSize;
    auto* w = device_alloc<__nv_bfloat16>(kSize * kSize);
    float *bias = device_alloc<float>(rows), *out = device_alloc<float>(n);
    fill_uniform(w, kSize * kSize, key, -0.02f, 0.02f);  // small: the map contracts, and rounding does not grow
    fill_uniform(bias, rows, key + 1, -1.f, 1.f);
    auto hw = to_host(w, kSize * kSize);
    auto hb = to_host(bias, rows);
    std::vector<double> x(kSize), y(kSize);
    size_t held = SIZE_MAX;
    auto reference = [&](size_t i) {
        if (i / kSize != held) {
            held = i / kSize;
            std::fill(x.begin(), x.end(), 1.0);
            for (int s = 0; s < steps; ++s) {
                for (int j = 0; j < kSize; ++j) {
                    double sum = hb[held];
                    for (int k = 0; k < kSize; ++k) sum += double(bf16_round(x[k])) * double(__bfloat162float(hw[j * kSize + k]));
                    y[j] = std::exp2(sum);
                }
                x.swap(y);
            }
        }
        return x[i % kSize];
    };
    int blocks = std::min(sm_count(), groups);
    auto launch = [&] {
        if (fault) map_in_step<<<blocks, 256>>>(w, bias, out, steps, groups, 0);
        else map_in_turns<<<blocks, 256>>>(w, bias, out, steps, groups, 1);
    };
    return run_checked(fault ? "faults/map-in-step" : "faults/map-in-turns", reps, launch, out, n, reference,
                       (2.0 * kSize + 1) * n * steps, 4.0 * (n + rows), 5e-3, 256);
}
