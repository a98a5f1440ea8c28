// Four bucket numbers a key for a count sketch: ((a * key + b) mod p) mod buckets, p = 2^31 - 1.
#include "h_harness.cuh"

struct Hashes {
    unsigned long long a[4], b[4];
};

__global__ void sketch_buckets(const unsigned* __restrict__ key, unsigned* __restrict__ bucket, int n, Hashes hash,
                               unsigned long long prime, unsigned long long buckets) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long k = key[i];
#pragma unroll
    for (int h = 0; h < 4; ++h) bucket[size_t(h) * n + i] = unsigned((hash.a[h] * k + hash.b[h]) % prime % buckets);
}

// p is a Mersenne prime and the number of buckets a power of two.
__global__ void sketch_buckets_fold(const unsigned* __restrict__ key, unsigned* __restrict__ bucket, int n, Hashes hash,
                                    unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long k = key[i];
    const unsigned long long p = 0x7fffffffull;
#pragma unroll
    for (int h = 0; h < 4; ++h) {
        unsigned long long v = hash.a[h] * k + hash.b[h];
        v = (v & p) + (v >> 31);
        v = (v & p) + (v >> 31);
        unsigned r = unsigned(v >= p ? v - p : v);
        bucket[size_t(h) * n + i] = r & mask;
    }
}

struct Reference {
    const unsigned* key;
    int n;
    Hashes hash;
    unsigned long long buckets;
    __device__ double operator()(size_t i) const {
        int h = int(i / n);
        return double((hash.a[h] * key[i % n] + hash.b[h]) % 2147483647ull % buckets);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 9000000, 1 << 27), log2 = positive(args, "log2", 20, 30);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    Hashes hash;
    for (int h = 0; h < 4; ++h) {
        hash.a[h] = diagnose_hash(key + 2 * h) % 2147483646ull + 1;
        hash.b[h] = diagnose_hash(key + 2 * h + 1) % 2147483647ull;
    }
    unsigned long long buckets = 1ull << log2;
    unsigned* keys = device_alloc<unsigned>(n);
    unsigned* bucket = device_alloc<unsigned>(size_t(n) * 4);
    fill_uniform(keys, n, key, 0.0f, 4294967040.0f);
    poison(bucket, size_t(n) * 16);
    auto launch = [&] {
        if (fix) sketch_buckets_fold<<<blocks_for(n, 320), 320>>>(keys, bucket, n, hash, unsigned(buckets - 1));
        else sketch_buckets<<<blocks_for(n, 320), 320>>>(keys, bucket, n, hash, 2147483647ull, buckets);
    };
    launch_once(launch);
    double error = device_error(bucket, size_t(n) * 4, Reference{keys, n, hash, buckets});
    double us = median_us(launch, reps);
    return report("faults/h-sketch", us, 0, 20.0 * n, error, 0);
}
