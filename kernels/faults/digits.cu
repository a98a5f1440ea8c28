// Sum of the digits of each number in a base known only at run time.
#include "pair.cuh"

__global__ void digits_direct(const uint32_t* in, uint32_t* out, uint32_t base, int places, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t v = in[i], sum = 0;
    for (int p = 0; p < places; ++p) sum += v % base, v /= base;
    out[i] = sum;
}

// v / base as a multiply-high by a reciprocal the host prepared; exact for v < 2^31.
__global__ void digits_scaled(const uint32_t* in, uint32_t* out, uint32_t base, uint32_t scale, int shift, int places, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t v = in[i], sum = 0;
    for (int p = 0; p < places; ++p) {
        uint32_t q = __umulhi(v, scale) >> shift;
        sum += v - q * base, v = q;
    }
    out[i] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int n = int(args.get("n", 33554432)), places = int(args.get("places", 16)), reps = repeats(args);
    uint32_t base = uint32_t(args.get("base", 10));
    auto key = seed(args);
    args.done();
    require(n > 0 && places > 0 && base >= 2 && base <= 1000000, "--n and --places must be positive, --base 2 to 1000000");
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
        else digits_scaled<<<(n + 255) / 256, 256>>>(in, out, base, scale, bits - 1, places, n);
    };
    return run_checked(fault ? "faults/digits-direct" : "faults/digits-scaled", reps, launch, out, n, reference, 0, 8.0 * n, 0.0);
}
