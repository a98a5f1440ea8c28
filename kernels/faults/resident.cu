// Repeated sums C += A W on mma.sync with every operand in registers: 64 rows a block, W 64 x 64.
#include "tensor.cuh"
constexpr int kSize = 64;

__global__ void __launch_bounds__(128, 4) multiply_resident(const __nv_bfloat16* a, const __nv_bfloat16* w, float* c, int rounds) {
    int lane = threadIdx.x % 32, g = lane / 4, col = lane % 4 * 2;
    size_t row = size_t(blockIdx.x) * 64 + threadIdx.x / 32 * 16 + g;
    uint32_t fa[4][4], fw[4][8][2];
    float s[8][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int e = 0; e < 4; ++e) fa[k][e] = *reinterpret_cast<const uint32_t*>(a + (row + e % 2 * 8) * kSize + k * 16 + e / 2 * 8 + col);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) fw[k][j][h] = *reinterpret_cast<const uint32_t*>(w + (j * 8 + g) * kSize + k * 16 + h * 8 + col);
    }
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int j = 0; j < 8; ++j) mma_bf16(s[j], fa[k], fw[k][j]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        *reinterpret_cast<float2*>(c + row * kSize + j * 8 + col) = make_float2(s[j][0], s[j][1]);
        *reinterpret_cast<float2*>(c + (row + 8) * kSize + j * 8 + col) = make_float2(s[j][2], s[j][3]);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int tiles = int(args.get("tiles", 4224)), rounds = int(args.get("rounds", 512)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(tiles > 0 && rounds > 0, "--tiles and --rounds must be positive");
    size_t n = size_t(tiles) * 64 * kSize;
    auto *a = device_alloc<__nv_bfloat16>(n), *w = device_alloc<__nv_bfloat16>(kSize * kSize);
    float* c = device_alloc<float>(n);
    fill_uniform(a, n, key, -1.f, 1.f);
    fill_uniform(w, kSize * kSize, key + 1, -1.f, 1.f);
    auto ha = to_host(a, n), hw = to_host(w, kSize * kSize);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int k = 0; k < kSize; ++k) sum += double(__bfloat162float(ha[i / kSize * kSize + k])) * double(__bfloat162float(hw[i % kSize * kSize + k]));
        return sum * rounds;
    };
    auto launch = [&] { multiply_resident<<<tiles, 128>>>(a, w, c, rounds); };
    return run_checked("faults/multiply-resident", reps, launch, c, n, reference, 2.0 * n * kSize * rounds, 6.0 * n, 5e-3);
}
