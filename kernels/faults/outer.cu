// C = A B^T in bf16 with float sums: register tiles of 8 x 8 on the FMA pipe, or mma.sync.
#include "tiles.cuh"

__global__ void __launch_bounds__(256) product_outer(const bf16* a, const bf16* b, float* c, int n, int k) {
    constexpr int kStep = 16, kWide = 132;
    __shared__ __align__(16) float as[kStep][kWide], bs[kStep][kWide];
    int t = threadIdx.x, row = t / 2, part = t % 2 * 8, x = t % 16 * 4, y = t / 16 * 4;
    const bf16 *ga = a + (size_t(blockIdx.y) * 128 + row) * k + part, *gb = b + (size_t(blockIdx.x) * 128 + row) * k + part;
    float acc[8][8] = {};
    uint4 ra = *reinterpret_cast<const uint4*>(ga), rb = *reinterpret_cast<const uint4*>(gb);
    for (int k0 = 0; k0 < k; k0 += kStep) {
        const bf16 *pa = reinterpret_cast<const bf16*>(&ra), *pb = reinterpret_cast<const bf16*>(&rb);
#pragma unroll
        for (int e = 0; e < 8; ++e) as[part + e][row] = __bfloat162float(pa[e]), bs[part + e][row] = __bfloat162float(pb[e]);
        __syncthreads();
        if (k0 + kStep < k) {  // the next tile travels while this one is used
            ra = *reinterpret_cast<const uint4*>(ga + k0 + kStep);
            rb = *reinterpret_cast<const uint4*>(gb + k0 + kStep);
        }
#pragma unroll
        for (int s = 0; s < kStep; ++s) {
            float4 a0 = *reinterpret_cast<float4*>(&as[s][y]), a1 = *reinterpret_cast<float4*>(&as[s][y + 64]);
            float4 b0 = *reinterpret_cast<float4*>(&bs[s][x]), b1 = *reinterpret_cast<float4*>(&bs[s][x + 64]);
            float u[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w}, v[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(u[i], v[j], acc[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        float* to = c + (size_t(blockIdx.y) * 128 + y + i % 4 + i / 4 * 64) * n + blockIdx.x * 128 + x;
        *reinterpret_cast<float4*>(to) = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
        *reinterpret_cast<float4*>(to + 64) = make_float4(acc[i][4], acc[i][5], acc[i][6], acc[i][7]);
    }
}

__global__ void __launch_bounds__(256) product_fragments(const bf16* a, const bf16* b, float* c, int n, int k) {
    extern __shared__ __align__(128) bf16 shared[];
    product_ahead<4>(a, b, c, n, k, shared);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 1024)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(m > 0 && n > 0 && k > 0 && m % 128 == 0 && n % 128 == 0 && k % 32 == 0, "--m and --n must be multiples of 128, --k of 32");
    bf16 *a = device_alloc<bf16>(size_t(m) * k), *b = device_alloc<bf16>(size_t(n) * k);
    float* c = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1.f, 1.f);
    fill_uniform(b, size_t(n) * k, key + 1, -1.f, 1.f);
    size_t bytes = 4 * sizeof(bf16) * Tiles<4>::elements;
    allow_smem(product_fragments, bytes);
    auto launch = [&] {
        dim3 grid(n / 128, m / 128);
        if (fault) product_outer<<<grid, 256>>>(a, b, c, n, k);
        else product_fragments<<<grid, 256, bytes>>>(a, b, c, n, k);
    };
    return run_checked(fault ? "faults/product-outer" : "faults/product-fragments", reps, launch, c, size_t(m) * n,
                       product_reference(a, b, m, n, k), 2.0 * m * n * k, 2.0 * k * (m + n) + 4.0 * m * n, 1e-3);
}
