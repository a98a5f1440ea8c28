// y = W x for one token: W bf16 [n][k], a warp a row.
#include "h_harness.cuh"

__device__ float dot8(uint4 a, uint4 b) {
    const unsigned u[4] = {a.x, a.y, a.z, a.w}, v[4] = {b.x, b.y, b.z, b.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum += __uint_as_float(u[i] << 16) * __uint_as_float(v[i] << 16);
        sum += __uint_as_float(u[i] & 0xffff0000u) * __uint_as_float(v[i] & 0xffff0000u);
    }
    return sum;
}

__global__ void __launch_bounds__(192) project(const uint4* __restrict__ w, const uint4* __restrict__ x,
                                               float* __restrict__ y, int n, int vectors) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * 6 + threadIdx.x / 32;
    if (row >= n) return;
    const uint4* p = w + size_t(row) * vectors;
    float sum = 0;
    int i = lane;
    for (; i + 96 < vectors; i += 128) {
        uint4 a = p[i], b = p[i + 32], c = p[i + 64], d = p[i + 96];
        sum += dot8(a, x[i]) + dot8(b, x[i + 32]) + dot8(c, x[i + 64]) + dot8(d, x[i + 96]);
    }
    for (; i < vectors; i += 32) sum += dot8(p[i], x[i]);
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (lane == 0) y[row] = sum;
}

struct Reference {
    const __nv_bfloat16 *w, *x;
    int k;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int c = 0; c < k; ++c) sum += double(__bfloat162float(w[i * k + c])) * __bfloat162float(x[c]);
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 28672, 1 << 18), k = positive(args, "k", 8192, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(k % 8 == 0, "--k must be a multiple of 8");
    auto *w = device_alloc<__nv_bfloat16>(size_t(n) * k), *x = device_alloc<__nv_bfloat16>(k);
    float* y = device_alloc<float>(n);
    fill_uniform(w, size_t(n) * k, key, -1.0f, 1.0f);
    fill_uniform(x, k, key + 1, -1.0f, 1.0f);
    poison(y, n * sizeof(float));
    auto launch = [&] {
        project<<<blocks_for(n, 6), 192>>>(reinterpret_cast<uint4*>(w), reinterpret_cast<uint4*>(x), y, n, k / 8);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{w, x, k});
    double us = median_us(launch, reps);
    return report("faults/h-gemv", us, 0, 2.0 * n * double(k), error, 1e-4);
}
