// Distances between a molecule's fingerprint (1024 bits) and all others: intersection over union. Each compound has its words in a row.
// `fault` is launched with blocks of one warp, `fix` with eight; a warp has eight compounds, one after another, each found through an
// index and a header that tells where its words are.
#include "h_harness.cuh"

constexpr int kWords = 32, kEach = 8;

struct Header {
    unsigned first, ones;
};

template <int kWarps>
__device__ __forceinline__ void similarities(const unsigned* __restrict__ words, const Header* __restrict__ headers,
                                             const int* __restrict__ order, const unsigned* __restrict__ query, float* __restrict__ out, int n) {
    int lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * kEach;
    unsigned mine = query[lane];
    int ones = __reduce_add_sync(0xffffffffu, __popc(mine));
#pragma unroll 1
    for (int i = first; i < min(first + kEach, n); ++i) {
        Header header = headers[order[i]];
        int common = __reduce_add_sync(0xffffffffu, __popc(words[size_t(header.first) * kWords + lane] & mine));
        if (lane == 0) out[i] = __fdividef(float(common), float(int(header.ones) + ones - common));
    }
}

__global__ void __launch_bounds__(32) similar_single(const unsigned* __restrict__ words, const Header* __restrict__ headers,
                                                     const int* __restrict__ order, const unsigned* __restrict__ query, float* __restrict__ out,
                                                     int n) {
    similarities<1>(words, headers, order, query, out, n);
}

__global__ void __launch_bounds__(256) similar_eight(const unsigned* __restrict__ words, const Header* __restrict__ headers,
                                                     const int* __restrict__ order, const unsigned* __restrict__ query, float* __restrict__ out,
                                                     int n) {
    similarities<8>(words, headers, order, query, out, n);
}

__global__ void make_headers(const unsigned* words, Header* headers, int* order, int n, unsigned long long key) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned at = unsigned(diagnose_hash(key + i)) % unsigned(n), ones = 0;
        for (int w = 0; w < kWords; ++w) ones += __popc(words[size_t(at) * kWords + w]);
        headers[i] = {at, ones};
        order[i] = int(unsigned(diagnose_hash(~key + i)) % unsigned(n));
    }
}

struct Reference {
    const unsigned *words, *query;
    const Header* headers;
    const int* order;
    __device__ double operator()(size_t i) const {
        unsigned at = headers[order[i]].first;
        int common = 0, either = 0;
        for (int w = 0; w < kWords; ++w) {
            common += __popc(words[size_t(at) * kWords + w] & query[w]);
            either += __popc(words[size_t(at) * kWords + w] | query[w]);
        }
        return double(common) / double(either);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 4194304, 1 << 25);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    unsigned *words = device_alloc<unsigned>(size_t(n) * kWords), *query = device_alloc<unsigned>(kWords);
    Header* headers = device_alloc<Header>(n);
    int* order = device_alloc<int>(n);
    float* out = device_alloc<float>(n);
    fill_uniform(reinterpret_cast<uint8_t*>(words), size_t(n) * kWords * 4, key, 0, 1);
    fill_uniform(reinterpret_cast<uint8_t*>(query), kWords * 4, key + 1, 0, 1);
    make_headers<<<1056, 256>>>(words, headers, order, n, key + 2);
    CHECK_CUDA(cudaGetLastError());
    poison(out, size_t(n) * sizeof(float));
    auto launch = [&] {
        if (fix) similar_eight<<<blocks_for(n, 8 * kEach), 256>>>(words, headers, order, query, out, n);
        else similar_single<<<blocks_for(n, kEach), 32>>>(words, headers, order, query, out, n);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{words, query, headers, order});
    return report("faults/n-popcount", median_us(launch, reps), 0, 144.0 * n, error, 1e-5);
}
