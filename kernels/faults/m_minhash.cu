// MinHash signatures of documents, to find near duplicates in a corpus: 128 hash functions, the least hash of all shingles each.
#include "h_harness.cuh"

constexpr int kHashes = 128, kChunk = 1024;

__host__ __device__ __forceinline__ unsigned mix(unsigned x, unsigned a, unsigned b) {
    unsigned h = a * x + b;
    return h ^ (h >> 15);
}

__global__ void __launch_bounds__(kHashes) minhash(const uint4* __restrict__ shingles, const unsigned* __restrict__ a,
                                                   const unsigned* __restrict__ b, unsigned* __restrict__ signature, int count) {
    __shared__ uint4 chunk[kChunk / 4];
    unsigned u = a[threadIdx.x], v = b[threadIdx.x], least = 0xffffffffu;
    const uint4* from = shingles + size_t(blockIdx.x) * (count / 4);
    for (int start = 0; start < count / 4; start += kChunk / 4) {
        for (int i = threadIdx.x; i < kChunk / 4; i += kHashes) chunk[i] = from[start + i];
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < kChunk / 4; ++i) {
            uint4 s = chunk[i];
            least = min(least, mix(s.x, u, v));
            least = min(least, mix(s.y, u, v));
            least = min(least, mix(s.z, u, v));
            least = min(least, mix(s.w, u, v));
        }
        __syncthreads();
    }
    signature[size_t(blockIdx.x) * kHashes + threadIdx.x] = least;
}

struct Reference {
    const unsigned *shingles, *a, *b;
    int count;
    __device__ double operator()(size_t i) const {
        const unsigned* from = shingles + i / kHashes * count;
        unsigned least = 0xffffffffu;
        for (int j = 0; j < count; ++j) {
            unsigned long long h = ((unsigned long long)(a[i % kHashes]) * from[j] + b[i % kHashes]) % (1ull << 32);
            unsigned x = unsigned(h) ^ unsigned(h >> 15);
            if (x < least) least = x;
        }
        return double(least);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int docs = positive(args, "docs", 8448, 1 << 20), count = positive(args, "shingles", 2048, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(count % kChunk == 0, "--shingles must be a multiple of 1024");
    size_t n = size_t(docs) * count;
    auto* shingles = device_alloc<unsigned>(n);
    auto *a = device_alloc<unsigned>(kHashes), *b = device_alloc<unsigned>(kHashes);
    auto* signature = device_alloc<unsigned>(size_t(docs) * kHashes);
    auto bytes = [](unsigned* p) { return reinterpret_cast<uint8_t*>(p); };
    fill_uniform(bytes(shingles), n * 4, key, 0.0f, 256.0f);
    fill_uniform(bytes(a), kHashes * 4, key + 1, 0.0f, 256.0f);
    fill_uniform(bytes(b), kHashes * 4, key + 2, 0.0f, 256.0f);
    poison(signature, size_t(docs) * kHashes * 4);
    auto launch = [&] { minhash<<<docs, kHashes>>>(reinterpret_cast<uint4*>(shingles), a, b, signature, count); };
    launch_once(launch);
    double error = device_error(signature, size_t(docs) * kHashes, Reference{shingles, a, b, count});
    return report("faults/m-minhash", median_us(launch, reps), 0, 4.0 * double(n), error, 0);
}
