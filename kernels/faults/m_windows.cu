// Attention inside windows of 16 tokens (64 wide, bf16), a window a warp on mma.sync: o = softmax(q k^T / 8) v.
#include "../mma.cuh"
#include "h_harness.cuh"

constexpr int kTokens = 16, kDim = 64, kWarps = 4, kLd = kDim + 8;

__global__ void __launch_bounds__(kWarps * 32) window_attend(const uint4* __restrict__ q, const uint4* __restrict__ k,
                                                             const uint4* __restrict__ v, __nv_bfloat16* __restrict__ o) {
    __shared__ __align__(16) __nv_bfloat16 tile[kWarps][kTokens * kLd];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    size_t base = (size_t(blockIdx.x) * kWarps + warp) * (kTokens * kDim / 8);
    uint4 value[4], top[2], bottom[2], key[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        top[i] = q[base + g * 8 + i * 4 + t];
        bottom[i] = q[base + (g + 8) * 8 + i * 4 + t];
        for (int j = 0; j < 2; ++j) key[i][j] = k[base + (j * 8 + g) * 8 + i * 4 + t];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] = v[base + i * 32 + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        *reinterpret_cast<uint4*>(&tile[warp][(i * 4 + lane / 8) * kLd + lane % 8 * 8]) = value[i];
    float s[2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        // The same permutation of the 64 dimensions in both operands: the sum is the same.
        const uint32_t a0[4] = {top[i].x, bottom[i].x, top[i].y, bottom[i].y}, a1[4] = {top[i].z, bottom[i].z, top[i].w, bottom[i].w};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            mma(s[j], a0, key[i][j].x, key[i][j].y);
            mma(s[j], a1, key[i][j].z, key[i][j].w);
        }
    }
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // rows g and g + 8
        float most = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& x = s[j][2 * h + e];
                x = __expf((x - most) * 0.125f);
                sum += x;
            }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        scale[h] = __fdividef(1.0f, sum);
    }
    const uint32_t p[4] = {pack_bf16(s[0][0], s[0][1]), pack_bf16(s[0][2], s[0][3]), pack_bf16(s[1][0], s[1][1]),
                           pack_bf16(s[1][2], s[1][3])};
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
        uint32_t b[4];
        ldmatrix_transposed(b, shared_address(&tile[warp][lane % 16 * kLd + c * 16 + lane / 16 * 8]));
        float left[4] = {}, right[4] = {};
        mma(left, p, b[0], b[1]);
        mma(right, p, b[2], b[3]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            __nv_bfloat16* row = o + base * 8 + (g + 8 * h) * kDim + c * 16;
            store_row_16(row, pack_bf16(left[2 * h] * scale[h], left[2 * h + 1] * scale[h]),
                         pack_bf16(right[2 * h] * scale[h], right[2 * h + 1] * scale[h]), lane);
        }
    }
}

struct Reference {
    const __nv_bfloat16 *q, *k, *v;
    __device__ double operator()(size_t i) const {
        size_t row = i / kDim, first = row / kTokens * kTokens;
        double sum = 0, total = 0;
        for (int j = 0; j < kTokens; ++j) {
            float s = 0;
            for (int d = 0; d < kDim; ++d) s += __bfloat162float(q[row * kDim + d]) * __bfloat162float(k[(first + j) * kDim + d]);
            double w = double(expf(s * 0.125f));
            sum += w * double(__bfloat162float(v[(first + j) * kDim + i % kDim]));
            total += w;
        }
        return sum / total;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int windows = positive(args, "windows", 131072, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(windows % kWarps == 0, "--windows must be a multiple of 4");
    size_t n = size_t(windows) * kTokens * kDim;
    auto *q = device_alloc<__nv_bfloat16>(n), *k = device_alloc<__nv_bfloat16>(n), *v = device_alloc<__nv_bfloat16>(n);
    auto* o = device_alloc<__nv_bfloat16>(n);
    fill_uniform(q, n, key, -2.0f, 2.0f);
    fill_uniform(k, n, key + 1, -2.0f, 2.0f);
    fill_uniform(v, n, key + 2, -1.0f, 1.0f);
    poison(o, n * 2);
    auto vectors = [](__nv_bfloat16* p) { return reinterpret_cast<uint4*>(p); };
    auto launch = [&] { window_attend<<<windows / kWarps, kWarps * 32>>>(vectors(q), vectors(k), vectors(v), o); };
    launch_once(launch);
    double error = device_error(o, n, Reference{q, k, v});
    return report("faults/m-windows", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-2);
}
