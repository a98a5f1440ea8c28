// Luma of an interleaved 8-bit RGB image. `fault` takes a pixel a thread, `fix` sixteen.
#include "h_harness.cuh"
#include "pair.cuh"

__host__ __device__ inline unsigned luma(unsigned r, unsigned g, unsigned b) { return (77 * r + 150 * g + 29 * b + 128) >> 8; }

__global__ void __launch_bounds__(256) to_gray(const uint8_t* __restrict__ rgb, uint8_t* __restrict__ gray, int pixels) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < pixels) gray[i] = uint8_t(luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]));
}

__global__ void __launch_bounds__(256) to_gray_sixteen(const uint4* __restrict__ rgb, uint4* __restrict__ gray, int groups) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= groups) return;
    uint4 v0 = rgb[3 * i], v1 = rgb[3 * i + 1], v2 = rgb[3 * i + 2];
    unsigned words[12] = {v0.x, v0.y, v0.z, v0.w, v1.x, v1.y, v1.z, v1.w, v2.x, v2.y, v2.z, v2.w}, out[4] = {};
    auto byte = [&](int k) { return words[k / 4] >> (8 * (k % 4)) & 255u; };
#pragma unroll
    for (int p = 0; p < 16; ++p) out[p / 4] |= luma(byte(3 * p), byte(3 * p + 1), byte(3 * p + 2)) << (8 * (p % 4));
    gray[i] = make_uint4(out[0], out[1], out[2], out[3]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int pixels = positive(args, "pixels", 100663296, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(pixels % 16 == 0, "--pixels must be a multiple of 16");
    size_t n = size_t(pixels);
    uint8_t *rgb = device_alloc<uint8_t>(3 * n), *gray = device_alloc<uint8_t>(n);
    fill_uniform(rgb, 3 * n, key, 0.f, 1.f);
    poison(gray, n);
    auto launch = [&] {
        if (fix) to_gray_sixteen<<<blocks_for(n / 16, 256), 256>>>(reinterpret_cast<uint4*>(rgb), reinterpret_cast<uint4*>(gray), pixels / 16);
        else to_gray<<<blocks_for(n, 256), 256>>>(rgb, gray, pixels);
    };
    launch_once(launch);
    std::vector<uint8_t> from = to_host(rgb, 3 * n);
    double error = sampled_error(to_host(gray, n), [&](size_t i) { return luma(from[3 * i], from[3 * i + 1], from[3 * i + 2]); }, 4000000);
    return report("faults/k-tint", median_us(launch, reps), 0, 4.0 * n, error, 0);
}
