// Sum of the digits of each number in a base known only at run time.
#include "pair.cuh"

__global__ void digits_direct(const uint32_t* in, uint32_t* out, uint32_t base, int places, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t v = in[i], sum = 0;
    for (int p = 0; p < places; ++p) sum += v % base, v /= base;
    out[i] = sum;
}

// v / base as a multiply-high by a reciprocal the host prepared; exact for v < 2^31. Eight numbers a thread, in two vectors:
// the digits of one number wait for each other, those of eight fill the multipliers.
constexpr int kThreads = 256, kVectors = 2;
__global__ void __launch_bounds__(kThreads) digits_scaled(const uint4* in, uint4* out, uint32_t base, uint32_t scale, int shift,
                                                          int places, int vectors) {
    int first = blockIdx.x * kThreads * kVectors + threadIdx.x;
    uint32_t v[kVectors][4], sum[kVectors][4] = {};
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        uint4 read = in[min(first + j * kThreads, vectors - 1)];
        v[j][0] = read.x, v[j][1] = read.y, v[j][2] = read.z, v[j][3] = read.w;
    }
#pragma unroll 4
    for (int p = 0; p < places; ++p)
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                uint32_t q = __umulhi(v[j][e], scale) >> shift;
                sum[j][e] += v[j][e] - q * base, v[j][e] = q;
            }
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
        if (int i = first + j * kThreads; i < vectors) out[i] = make_uint4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int n = int(args.get("n", 33554432)), places = int(args.get("places", 16)), reps = repeats(args);
    uint32_t base = uint32_t(args.get("base", 10));
    auto key = seed(args);
    args.done();
    require(n > 0 && n % 4 == 0, "--n must be a positive multiple of 4");
    require(places > 0 && base >= 2 && base <= 1000000, "--places must be positive, --base 2 to 1000000");
    int bits = 1;
    while ((1u << bits) < base) ++bits;
    uint32_t scale = uint32_t(((1ull << (31 + bits)) + base - 1) / base);  // rounded up: below 2^32 since base > 2^(bits-1)
    uint32_t *in = device_alloc<uint32_t>(n), *out = device_alloc<uint32_t>(n);
    fill_uniform(in, n, key, 0.f, 2147483648.f);
    auto hi = to_host(in, n);
    auto reference = [&](size_t i) {
        uint32_t v = hi[i], sum = 0;
        for (int p = 0; p < places; ++p) sum += v % base, v /= base;
        return sum;
    };
    auto launch = [&] {
        if (fault) digits_direct<<<(n + 255) / 256, 256>>>(in, out, base, places, n);
        else digits_scaled<<<(n / 4 + kThreads * kVectors - 1) / (kThreads * kVectors), kThreads>>>(
            reinterpret_cast<const uint4*>(in), reinterpret_cast<uint4*>(out), base, scale, bits - 1, places, n / 4);
    };
    return run_checked(fault ? "faults/digits-direct" : "faults/digits-scaled", reps, launch, out, n, reference, 0, 8.0 * n, 0.0);
}
