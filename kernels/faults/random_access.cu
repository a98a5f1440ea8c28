// Gather of single words from a table several times L2: the same set of words in random or in ascending order.
#include "memory.cuh"

__global__ void gather_words(const unsigned* __restrict__ table, const unsigned* __restrict__ index,
                             unsigned* __restrict__ out) {
    unsigned first = blockIdx.x * 1024 + threadIdx.x, at[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) at[k] = index[first + k * 256];
#pragma unroll
    for (int k = 0; k < 4; ++k) out[first + k * 256] = table[at[k]];
}

// One word of every pair of table entries; `mask` + 1 is a power of two, so each step is a bijection of 0..mask.
__global__ void make_index(unsigned* index, unsigned mask, unsigned key, bool scatter) {
    unsigned i = blockIdx.x * 256 + threadIdx.x, x = i;
    if (i > mask) return;
    for (int round = 0; scatter && round < 4; ++round) {
        x = (x * 0x9e3779b1u + key) & mask;
        x ^= x >> 11;
    }
    index[i] = 2 * x + unsigned(diagnose_hash(x + key) & 1);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 32 << 20, 1024);
    require((n & (n - 1)) == 0, "--n must be a power of two");
    args.done();
    unsigned *table = device_alloc<unsigned>(2 * n), *index = device_alloc<unsigned>(n), *out = device_alloc<unsigned>(n);
    fill_uniform(table, 2 * n, s, 0, 4e9f);
    make_index<<<unsigned((n + 255) / 256), 256>>>(index, unsigned(n - 1), unsigned(s), fault);
    poison(out, 4 * n);
    auto launch = [&] { gather_words<<<unsigned(n / 1024), 256>>>(table, index, out); };
    run_once(launch);
    auto t = to_host(table, 2 * n), at = to_host(index, n);
    double error = mismatch(out, n, [&](size_t i) { return t[at[i]]; });
    return report(fault ? "faults/gather-random" : "faults/gather-sorted", median_us(launch, r), 0, 12.0 * n, error, 0);
}
