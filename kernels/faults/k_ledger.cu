// Probes a hash table of 2^27 slots (open addressing, a quarter full) with keys of which half are there.
#include "h_harness.cuh"

using Slot = unsigned long long;  // key in the high half, value in the low
constexpr Slot kEmpty = ~0ull;

__host__ __device__ inline unsigned place(unsigned key) {
    key ^= key >> 16;
    key *= 0x85ebca6bu;
    key ^= key >> 13;
    key *= 0xc2b2ae35u;
    return key ^ key >> 16;
}
__host__ __device__ inline unsigned key_of(unsigned i, unsigned salt) { return (i + salt) * 2654435761u; }
// Never all ones, so that no slot looks empty.
__host__ __device__ inline unsigned value_of(unsigned i) { return i * 3u + 1u & 0x7fffffffu; }

__global__ void insert_rows(Slot* table, unsigned mask, unsigned rows, unsigned salt) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x) {
        unsigned key = key_of(i, salt);
        Slot mine = Slot(key) << 32 | value_of(i);
        for (unsigned at = place(key) & mask; atomicCAS(table + at, kEmpty, mine) != kEmpty; at = (at + 1) & mask) {
        }
    }
}

__global__ void make_probes(unsigned* probes, unsigned n, unsigned rows, unsigned salt, unsigned long long seed) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        probes[i] = key_of(unsigned(diagnose_hash(seed + i) % (2ull * rows)), salt);
}

__global__ void __launch_bounds__(256) join_probe(const Slot* __restrict__ table, const unsigned* __restrict__ probes, unsigned* __restrict__ out, unsigned mask) {
    unsigned i = blockIdx.x * 256 + threadIdx.x, key = probes[i], at = place(key) & mask, value = 0;
    for (;;) {
        Slot slot = table[at];
        if (slot == kEmpty) break;
        if (unsigned(slot >> 32) == key) {
            value = unsigned(slot);
            break;
        }
        at = (at + 1) & mask;
    }
    out[i] = value;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int bits = positive(args, "bits", 27, 30), n = positive(args, "n", 16777216, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(bits >= 12 && n % 256 == 0, "--bits must be at least 12 and --n a multiple of 256");
    unsigned slots = 1u << bits, rows = slots / 4, salt = unsigned(diagnose_hash(key));
    Slot* table = device_alloc<Slot>(slots);
    unsigned *probes = device_alloc<unsigned>(n), *out = device_alloc<unsigned>(n);
    CHECK_CUDA(cudaMemset(table, 0xff, size_t(slots) * sizeof(Slot)));
    insert_rows<<<2112, 256>>>(table, slots - 1, rows, salt);
    make_probes<<<2112, 256>>>(probes, unsigned(n), rows, salt, diagnose_hash(key + 5));
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    poison(out, size_t(n) * sizeof(unsigned));
    auto launch = [&] { join_probe<<<n / 256, 256>>>(table, probes, out, slots - 1); };
    launch_once(launch);
    std::vector<unsigned> got = to_host(out, n);
    double wrong = 0;
    for (int i = 0; i < n; ++i) {
        unsigned row = unsigned(diagnose_hash(diagnose_hash(key + 5) + i) % (2ull * rows));
        wrong += got[i] != (row < rows ? value_of(row) : 0u);
    }
    return report("faults/k-ledger", median_us(launch, reps), 0, 16.0 * n, wrong, 0);
}
