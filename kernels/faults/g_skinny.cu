// Y (16 x n) = X (16 x k) W (n x k)^T in bf16. `fault`: one block walks all of k; `fix`: sixteen blocks share it and a small
// kernel adds their parts.
#include "../mma.cuh"
#include "g_util.cuh"
using namespace held;

__global__ void __launch_bounds__(128) skinny_product(const __nv_bfloat16* x, const __nv_bfloat16* w, float* parts, int n, int k) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int col0 = blockIdx.x * 128 + threadIdx.x / 32 * 32, span = k / gridDim.y, begin = blockIdx.y * span;
    const __nv_bfloat16* wp = w + size_t(col0 + g) * k + begin + t * 8;
    const __nv_bfloat16* xp = x + size_t(g) * k + begin + t * 8;
    float acc[4][4] = {};
#pragma unroll 2
    for (int i = 0; i < span; i += 32) {
        uint4 xa = __ldg(reinterpret_cast<const uint4*>(xp + i)), xb = __ldg(reinterpret_cast<const uint4*>(xp + size_t(8) * k + i));
        uint4 b[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) b[j] = __ldcs(reinterpret_cast<const uint4*>(wp + size_t(8 * j) * k + i));
        uint32_t a0[4] = {xa.x, xb.x, xa.y, xb.y}, a1[4] = {xa.z, xb.z, xa.w, xb.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            mma(acc[j], a0, b[j].x, b[j].y);
            mma(acc[j], a1, b[j].z, b[j].w);
        }
    }
    float* to = parts + size_t(blockIdx.y) * 16 * n + size_t(g) * n + col0 + 2 * t;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) = make_float2(acc[j][0], acc[j][1]);
        *reinterpret_cast<float2*>(to + size_t(8) * n + 8 * j) = make_float2(acc[j][2], acc[j][3]);
    }
}

__global__ void skinny_sum(const float* parts, float* y, int size, int splits) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float sum = 0;
    for (int s = 0; s < splits; ++s) sum += parts[size_t(s) * size + i];
    y[i] = sum;
}

// One warp a column.
__global__ void reference_skinny(const __nv_bfloat16* x, const __nv_bfloat16* w, double* y, int n, int k) {
    int col = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (col >= n) return;
    double sum[16] = {};
    for (int i = lane; i < k; i += 32) {
        double v = double(__bfloat162float(w[size_t(col) * k + i]));
        for (int r = 0; r < 16; ++r) sum[r] += v * double(__bfloat162float(x[size_t(r) * k + i]));
    }
    for (int r = 0; r < 16; ++r) {
        for (int o = 16; o; o >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], o);
        if (lane == 0) y[size_t(r) * n + col] = sum[r];
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int n = int(args.get("n", 4096)), k = int(args.get("k", 65536));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= 65536 && n % 128 == 0 && k > 0 && k <= 262144 && k % 1024 == 0, "n must be a multiple of 128, k of 1024");
    int splits = fix ? 16 : 1;
    auto* x = device_alloc<__nv_bfloat16>(size_t(16) * k);
    auto* w = device_alloc<__nv_bfloat16>(size_t(n) * k);
    float* parts = device_alloc<float>(size_t(splits) * 16 * n);
    float* y = device_alloc<float>(size_t(16) * n);
    double* ref = device_alloc<double>(size_t(16) * n);
    fill_uniform(x, size_t(16) * k, s, -1.0f, 1.0f);
    fill_uniform(w, size_t(n) * k, s + 1, -1.0f, 1.0f);
    poison(parts, size_t(splits) * 16 * n * 4);
    poison(y, size_t(16) * n * 4);
    reference_skinny<<<(n + 7) / 8, 256>>>(x, w, ref, n, k);
    auto launch = [&] {
        skinny_product<<<dim3(n / 128, splits), 128>>>(x, w, splits > 1 ? parts : y, n, k);
        if (splits > 1) skinny_sum<<<(16 * n + 255) / 256, 256>>>(parts, y, 16 * n, splits);
    };
    launch();
    finish();
    double error = device_error(y, ref, size_t(16) * n);
    return report("faults/g-skinny", median_us(launch, reps), 0, 2.0 * n * k, error, 1e-4);
}
