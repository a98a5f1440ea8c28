// Product of n x n matrices of 32-bit integers (no Tensor Core type): one output a thread, or 8 x 8.
#include "memory.cuh"

// Two words out of shared memory for every multiply-add.
__global__ void __launch_bounds__(1024) multiply_points(const unsigned* __restrict__ a, const unsigned* __restrict__ b,
                                                        unsigned* __restrict__ c, int n) {
    __shared__ unsigned as[32][32], bs[32][32];
    int x = threadIdx.x % 32, y = threadIdx.x / 32, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    unsigned total = 0;
    for (int k0 = 0; k0 < n; k0 += 32) {
        as[y][x] = a[size_t(row) * n + k0 + x];
        bs[y][x] = b[size_t(k0 + y) * n + col];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; ++k) total += as[y][k] * bs[k][x];
        __syncthreads();
    }
    c[size_t(row) * n + col] = total;
}

// 16 words for 64 multiply-adds. Tiles are double-buffered: one barrier a step, loads in flight during the products.
__global__ void __launch_bounds__(256, 2) multiply_patches(const unsigned* __restrict__ a, const unsigned* __restrict__ b,
                                                        unsigned* __restrict__ c, int n) {
    __shared__ __align__(16) unsigned as[2][8][132], bs[2][8][128];  // 132: the transposing stores miss each other
    int t = threadIdx.x, tx = t % 16 * 4, ty = t / 16 * 4;
    const unsigned* from_a = a + size_t(blockIdx.y * 128 + t / 2) * n + t % 2 * 4;
    const unsigned* from_b = b + size_t(t / 32) * n + blockIdx.x * 128 + t % 32 * 4;
    unsigned total[8][8] = {};
    uint4 next_a, next_b;
    auto load = [&](int k0) {
        next_a = *reinterpret_cast<const uint4*>(from_a + k0);
        next_b = *reinterpret_cast<const uint4*>(from_b + size_t(k0) * n);
    };
    auto store = [&](int buffer) {
        int k = t % 2 * 4;
        as[buffer][k][t / 2] = next_a.x, as[buffer][k + 1][t / 2] = next_a.y;
        as[buffer][k + 2][t / 2] = next_a.z, as[buffer][k + 3][t / 2] = next_a.w;
        *reinterpret_cast<uint4*>(&bs[buffer][t / 32][t % 32 * 4]) = next_b;
    };
    load(0);
    store(0);
    __syncthreads();
    for (int k0 = 0, buffer = 0; k0 < n; k0 += 8, buffer ^= 1) {
        if (k0 + 8 < n) load(k0 + 8);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            unsigned av[8], bv[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint4 u = *reinterpret_cast<const uint4*>(&as[buffer][k][ty + half * 64]);
                uint4 v = *reinterpret_cast<const uint4*>(&bs[buffer][k][tx + half * 64]);
                av[half * 4] = u.x, av[half * 4 + 1] = u.y, av[half * 4 + 2] = u.z, av[half * 4 + 3] = u.w;
                bv[half * 4] = v.x, bv[half * 4 + 1] = v.y, bv[half * 4 + 2] = v.z, bv[half * 4 + 3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) total[i][j] += av[i] * bv[j];
        }
        if (k0 + 8 < n) store(buffer ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            size_t row = blockIdx.y * 128 + ty + i / 4 * 64 + i % 4, col = blockIdx.x * 128 + tx + half * 64;
            *reinterpret_cast<uint4*>(&c[row * n + col]) = make_uint4(total[i][half * 4], total[i][half * 4 + 1],
                                                                      total[i][half * 4 + 2], total[i][half * 4 + 3]);
        }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    int n = int(size_arg(args, "n", 2048, 128));
    require(n <= 32768, "--n is at most 32768");
    args.done();
    size_t count = size_t(n) * n;
    auto a = device_alloc<unsigned>(count), b = device_alloc<unsigned>(count), c = device_alloc<unsigned>(count);
    fill_uniform(a, count, s, 0, 4e9f);
    fill_uniform(b, count, s + 1, 0, 4e9f);
    poison(c, 4 * count);
    auto launch = [&] {
        if (fault) multiply_points<<<dim3(n / 32, n / 32), 1024>>>(a, b, c, n);
        else multiply_patches<<<dim3(n / 128, n / 128), 256>>>(a, b, c, n);
    };
    run_once(launch);
    // All arithmetic is modulo 2^32, so C v = A (B v) must hold exactly for any v: n^2 work instead of n^3.
    auto ha = to_host(a, count), hb = to_host(b, count), hc = to_host(c, count);
    std::vector<unsigned> v(n), bv(n);
    for (int i = 0; i < n; ++i) v[i] = unsigned(diagnose_hash(s + i)) | 1u;
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) bv[i] += hb[size_t(i) * n + j] * v[j];
    int bad = 0;
    for (int i = 0; i < n; ++i) {
        unsigned left = 0, right = 0;
        for (int j = 0; j < n; ++j) {
            left += hc[size_t(i) * n + j] * v[j];
            right += ha[size_t(i) * n + j] * bv[j];
        }
        bad += left != right;
    }
    return report(fault ? "faults/multiply-points" : "faults/multiply-patches", median_us(launch, r),
                  2.0 * n * double(count), 12.0 * count, double(bad) / n, 0);
}
