// A table scan: two byte columns, a conjunction of two comparisons, a bit a row and the number of hits. `fault` takes a row a
// thread and votes, `fix` sixteen rows a thread in 16-byte loads.
#include "h_harness.cuh"

struct Predicate {
    uint8_t quantity_below, discount_from;
    __host__ __device__ bool operator()(unsigned quantity, unsigned discount) const {
        return quantity < quantity_below && discount >= discount_from;
    }
    // Four rows: bytes in the halves of a word, so that the ninth bit of a sum says "not less".
    __device__ unsigned four(unsigned quantity, unsigned discount) const {
        const unsigned q = (256u - quantity_below) * 0x00010001u, d = (256u - discount_from) * 0x00010001u, low = 0x00ff00ffu;
        unsigned even = ~((quantity & low) + q) & ((discount & low) + d) & 0x01000100u;
        unsigned odd = ~((quantity >> 8 & low) + q) & ((discount >> 8 & low) + d) & 0x01000100u;
        unsigned pairs = even >> 8 | odd >> 7;
        return (pairs | pairs >> 14) & 15u;
    }
};

__device__ __forceinline__ void count_hits(int hits, int* total) {
    __shared__ int block_hits;
    if (threadIdx.x == 0) block_hits = 0;
    __syncthreads();
    hits = __reduce_add_sync(0xffffffffu, hits);
    if (threadIdx.x % 32 == 0) atomicAdd(&block_hits, hits);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, block_hits);
}

// Both walk over the rows with the whole grid.
__global__ void __launch_bounds__(256) scan_rows(const uint8_t* __restrict__ quantity, const uint8_t* __restrict__ discount,
                                                 unsigned* __restrict__ bits, size_t rows, Predicate keep, int* total) {
    int hits = 0;
    for (size_t i = size_t(blockIdx.x) * 256 + threadIdx.x; i < rows; i += size_t(gridDim.x) * 256) {
        bool hit = keep(quantity[i], discount[i]);
        unsigned word = __ballot_sync(0xffffffffu, hit);
        if (threadIdx.x % 32 == 0) bits[i / 32] = word;
        hits += hit;
    }
    count_hits(hits, total);
}

__global__ void __launch_bounds__(256) scan_vectors(const uint4* __restrict__ quantity, const uint4* __restrict__ discount,
                                                    uint16_t* __restrict__ bits, size_t vectors, Predicate keep, int* total) {
    int hits = 0;
#pragma unroll 2
    for (size_t i = size_t(blockIdx.x) * 256 + threadIdx.x; i < vectors; i += size_t(gridDim.x) * 256) {
        uint4 q = quantity[i], d = discount[i];
        unsigned mask = keep.four(q.x, d.x) | keep.four(q.y, d.y) << 4 | keep.four(q.z, d.z) << 8 | keep.four(q.w, d.w) << 12;
        bits[i] = uint16_t(mask);
        hits += __popc(mask);
    }
    count_hits(hits, total);
}

struct Reference {
    const uint8_t *quantity, *discount;
    Predicate keep;
    __device__ double operator()(size_t w) const {
        unsigned word = 0;
        for (int j = 0; j < 32; ++j) word |= unsigned(keep(quantity[w * 32 + j], discount[w * 32 + j])) << j;
        return word;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 268435456, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % 512 == 0, "--rows must be a multiple of 512");
    uint8_t *quantity = device_alloc<uint8_t>(rows), *discount = device_alloc<uint8_t>(rows);
    unsigned* bits = device_alloc<unsigned>(rows / 32);
    int* total = device_alloc<int>(1);
    fill_uniform(quantity, rows, key, 0, 1);
    fill_uniform(discount, rows, key + 1, 0, 1);
    poison(bits, size_t(rows) / 8);
    Predicate keep{122, 100};
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(total, 0, sizeof(int)));
        if (fix)
            scan_vectors<<<1056, 256>>>(reinterpret_cast<uint4*>(quantity), reinterpret_cast<uint4*>(discount),
                                        reinterpret_cast<uint16_t*>(bits), size_t(rows) / 16, keep, total);
        else scan_rows<<<1056, 256>>>(quantity, discount, bits, rows, keep, total);
    };
    launch_once(launch);
    double error = device_error(bits, size_t(rows) / 32, Reference{quantity, discount, keep});
    std::vector<unsigned> words = to_host(bits, size_t(rows) / 32);
    long long hits = 0;
    for (unsigned w : words) hits += __builtin_popcount(w);
    if (hits != to_host(total, 1)[0]) error = INFINITY;
    return report("faults/n-filter", median_us(launch, reps), 0, 2.125 * rows, error, 0);
}
