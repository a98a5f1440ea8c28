// Small networks: X <- relu(X W), W 64 x 64 in registers, several layers on mma.sync; each request has four rows. A tile of
// 16 rows holds one request and 12 rows of zeros, or four requests.
#include "tensor.cuh"
constexpr int kSize = 64, kRequest = 4, kWarps = 8;

__device__ __forceinline__ uint32_t pack(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(fmaxf(lo, 0.f), fmaxf(hi, 0.f));
    return *reinterpret_cast<uint32_t*>(&v);
}

// USED rows of each 16-row tile carry data.
template <int USED>
__device__ __forceinline__ void layers(const __nv_bfloat16* in, const __nv_bfloat16* w, float* out, int depth, int rows) {
    int lane = threadIdx.x % 32, g = lane / 4, col = lane % 4 * 2;
    uint32_t fw[4][8][2];
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) fw[k][j][h] = *reinterpret_cast<const uint32_t*>(w + (j * 8 + g) * kSize + k * 16 + h * 8 + col);
    int warps = gridDim.x * kWarps;
    for (int first = (blockIdx.x * kWarps + threadIdx.x / 32) * USED; first < rows; first += warps * USED) {
        bool low = g < USED && first + g < rows, high = g + 8 < USED && first + g + 8 < rows;
        const __nv_bfloat16* from = in + size_t(first + g) * kSize + col;
        uint32_t x[4][4];
        float s[8][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                x[k][2 * h] = low ? *reinterpret_cast<const uint32_t*>(from + k * 16 + h * 8) : 0;
                x[k][2 * h + 1] = high ? *reinterpret_cast<const uint32_t*>(from + 8 * kSize + k * 16 + h * 8) : 0;
            }
#pragma unroll 1
        for (int d = 0; d < depth; ++d) {
#pragma unroll
            for (int j = 0; j < 8; ++j) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int j = 0; j < 8; ++j) mma_bf16(s[j], x[k], fw[k][j]);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                x[j / 2][j % 2 * 2] = pack(s[j][0], s[j][1]);
                x[j / 2][j % 2 * 2 + 1] = pack(s[j][2], s[j][3]);
            }
        }
        float* to = out + size_t(first + g) * kSize + col;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (low) *reinterpret_cast<float2*>(to + j * 8) = make_float2(s[j][0], s[j][1]);
            if (high) *reinterpret_cast<float2*>(to + 8 * kSize + j * 8) = make_float2(s[j][2], s[j][3]);
        }
    }
}
__global__ void __launch_bounds__(256, 2) layers_single(const __nv_bfloat16* in, const __nv_bfloat16* w, float* out, int depth, int rows) {
    layers<kRequest>(in, w, out, depth, rows);
}
__global__ void __launch_bounds__(256, 2) layers_batched(const __nv_bfloat16* in, const __nv_bfloat16* w, float* out, int depth, int rows) {
    layers<16>(in, w, out, depth, rows);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int requests = int(args.get("requests", 135168)), depth = int(args.get("depth", 32)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(requests > 0 && requests <= 100000000 && depth > 0, "--requests and --depth must be positive");
    int rows = requests * kRequest;
    size_t n = size_t(rows) * kSize;
    auto *in = device_alloc<__nv_bfloat16>(n), *w = device_alloc<__nv_bfloat16>(kSize * kSize);
    float* out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.f, 1.f);
    fill_uniform(w, kSize * kSize, key + 1, -0.28f, 0.312f);  // about keeps the size of X from layer to layer
    auto hi = to_host(in, n), hw = to_host(w, kSize * kSize);
    std::vector<double> x(kSize), y(kSize);
    size_t held = SIZE_MAX;
    auto reference = [&](size_t i) {
        if (i / kSize != held) {
            held = i / kSize;
            for (int k = 0; k < kSize; ++k) x[k] = __bfloat162float(hi[held * kSize + k]);
            for (int d = 0; d < depth; ++d) {
                for (int j = 0; j < kSize; ++j) {
                    double sum = 0;
                    for (int k = 0; k < kSize; ++k) sum += x[k] * double(__bfloat162float(hw[j * kSize + k]));
                    y[j] = d + 1 < depth ? bf16_round(std::max(sum, 0.0)) : sum;
                }
                x.swap(y);
            }
        }
        return x[i % kSize];
    };
    auto launch = [&] {
        int blocks = 2 * sm_count();
        if (fault) layers_single<<<blocks, 256>>>(in, w, out, depth, rows);
        else layers_batched<<<blocks, 256>>>(in, w, out, depth, rows);
    };
    return run_checked(fault ? "faults/layers-single" : "faults/layers-batched", reps, launch, out, n, reference,
                       2.0 * n * kSize * depth, 6.0 * n, 3e-2, 1024);
}
