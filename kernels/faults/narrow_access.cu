// Rounded average of two 8-bit images: one byte a lane, or 16.
#include "memory.cuh"

// A warp's request carries 32 bytes: sixteen times the instructions, and far too few bytes in flight.
__global__ void average_bytes(const uint8_t* __restrict__ a, const uint8_t* __restrict__ b, uint8_t* __restrict__ out,
                              unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = uint8_t((a[i] + b[i] + 1) >> 1);
}

// Four averages in a word: a|b minus half of a^b is the average rounded up, and no byte borrows from its neighbour.
__device__ unsigned average4(unsigned a, unsigned b) { return (a | b) - (((a ^ b) >> 1) & 0x7f7f7f7fu); }

__global__ void average_vectors(const uint4* __restrict__ a, const uint4* __restrict__ b, uint4* __restrict__ out,
                                unsigned n16) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n16) return;
    uint4 x = a[i], y = b[i];
    out[i] = make_uint4(average4(x.x, y.x), average4(x.y, y.y), average4(x.z, y.z), average4(x.w, y.w));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 256 << 20, 16);
    args.done();
    uint8_t *a = device_alloc<uint8_t>(n), *b = device_alloc<uint8_t>(n), *out = device_alloc<uint8_t>(n);
    fill_uniform(a, n, s, 0, 1);
    fill_uniform(b, n, s + 1, 0, 1);
    poison(out, n);
    auto launch = [&] {
        if (fault) average_bytes<<<unsigned((n + 255) / 256), 256>>>(a, b, out, unsigned(n));
        else
            average_vectors<<<unsigned((n / 16 + 255) / 256), 256>>>(reinterpret_cast<uint4*>(a),
                                                                     reinterpret_cast<uint4*>(b),
                                                                     reinterpret_cast<uint4*>(out), unsigned(n / 16));
    };
    run_once(launch);
    auto x = to_host(a, n), y = to_host(b, n);
    double error = mismatch(out, n, [&](size_t i) { return uint8_t((x[i] + y[i] + 1) / 2); });
    return report(fault ? "faults/average-bytes" : "faults/average-vectors", median_us(launch, r), 0, 3.0 * n, error,
                  0);
}
