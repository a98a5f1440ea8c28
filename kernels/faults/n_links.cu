// Walks chains of a cell list, 24 links each, keeps the values found in shared memory and takes their median. `fault` reserves room for
// the longest list there could be (400 values a thread), `fix` for 24.
#include "h_harness.cuh"

constexpr int kBlock = 64, kLinks = 24, kMost = 400;

struct alignas(8) Link {
    unsigned next;
    float value;
};

// The value with 12 smaller ones (ties by position).
__device__ __forceinline__ float upper_median(const float* list) {
    float result = 0;
    for (int i = 0; i < kLinks; ++i) {
        float v = list[i * kBlock];
        int before = 0;
#pragma unroll
        for (int j = 0; j < kLinks; ++j) {
            float w = list[j * kBlock];
            before += w < v || (w == v && j < i);
        }
        if (before == kLinks / 2) result = v;
    }
    return result;
}

__device__ __forceinline__ void walk(const Link* __restrict__ links, const unsigned* __restrict__ head, float* __restrict__ out, int n) {
    extern __shared__ float lists[];
    float* mine = lists + threadIdx.x;
    int i = blockIdx.x * kBlock + threadIdx.x;
    if (i >= n) return;
    unsigned at = head[i];
    for (int l = 0; l < kLinks; ++l) {
        Link link = links[at];
        mine[l * kBlock] = link.value;
        at = link.next;
    }
    out[i] = upper_median(mine);
}

__global__ void __launch_bounds__(kBlock) chains_longest(const Link* __restrict__ links, const unsigned* __restrict__ head,
                                                         float* __restrict__ out, int n) {
    walk(links, head, out, n);
}

__global__ void __launch_bounds__(kBlock) chains_exact(const Link* __restrict__ links, const unsigned* __restrict__ head,
                                                       float* __restrict__ out, int n) {
    walk(links, head, out, n);
}

__global__ void make_links(Link* links, unsigned count, unsigned* head, int n, unsigned long long key) {
    unsigned stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = first; i < count; i += stride) {
        unsigned long long h = diagnose_hash(key + i);
        links[i] = {unsigned(h) % count, float(unsigned(h >> 40)) * 0x1p-24f};
    }
    for (unsigned i = first; i < unsigned(n); i += stride) head[i] = unsigned(diagnose_hash(~key + i)) % count;
}

struct Reference {
    const Link* links;
    const unsigned* head;
    __device__ double operator()(size_t i) const {
        float list[kLinks];
        unsigned at = head[i];
        for (int l = 0; l < kLinks; ++l) {
            list[l] = links[at].value;
            at = links[at].next;
        }
        for (int a = 1; a < kLinks; ++a)  // insertion sort
            for (int b = a; b > 0 && list[b] < list[b - 1]; --b) {
                float t = list[b];
                list[b] = list[b - 1];
                list[b - 1] = t;
            }
        return list[kLinks / 2];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "chains", 1081344, 1 << 26), count = positive(args, "links", 1 << 20, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    Link* links = device_alloc<Link>(count);
    unsigned* head = device_alloc<unsigned>(n);
    float* out = device_alloc<float>(n);
    make_links<<<1056, 256>>>(links, count, head, n, key);
    CHECK_CUDA(cudaGetLastError());
    poison(out, size_t(n) * sizeof(float));
    int longest = kMost * kBlock * int(sizeof(float)), exact = kLinks * kBlock * int(sizeof(float));
    CHECK_CUDA(cudaFuncSetAttribute(chains_longest, cudaFuncAttributeMaxDynamicSharedMemorySize, longest));
    auto launch = [&] {
        if (fix) chains_exact<<<blocks_for(n, kBlock), kBlock, exact>>>(links, head, out, n);
        else chains_longest<<<blocks_for(n, kBlock), kBlock, longest>>>(links, head, out, n);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{links, head});
    return report("faults/n-links", median_us(launch, reps), 0, 8.0 * kLinks * n, error, 0);
}
