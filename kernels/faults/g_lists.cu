// Walks linked lists that are scattered over 256 MiB and sums their values. `fault` runs four warps a multiprocessor, `fix` sixty-four;
// both visit the same number of nodes.
#include "g_util.cuh"
using namespace held;

constexpr int kLog = 25;
struct Node { uint32_t next, value; };

// A bijection on 25 bits: where the list goes on.
__host__ __device__ inline uint32_t follow(uint32_t x) {
    constexpr uint32_t MASK = (1u << kLog) - 1;
    x = (x * 0x9e3779b1u + 0x7f4a7c15u) & MASK;
    x ^= x >> 13;
    x = (x * 0x85ebca6bu) & MASK;
    return x ^ (x >> 11);
}
__host__ __device__ inline uint32_t value_of(uint32_t x) { return uint32_t(diagnose_hash(x) >> 32); }

__global__ void make_lists(Node* nodes) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    nodes[i] = Node{follow(i), value_of(i)};
}

__global__ void __launch_bounds__(256) walk_lists(const uint2* nodes, const uint32_t* heads, uint32_t* sums, int walkers, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= walkers) return;
    uint32_t at = heads[i], sum = 0;
#pragma unroll 1
    for (int step = 0; step < length; ++step) {
        uint2 node = nodes[at];
        sum += node.y;
        at = node.x;
    }
    sums[i] = sum;
}

__global__ void reference_lists(const uint32_t* heads, uint32_t* sums, int walkers, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= walkers) return;
    uint32_t at = heads[i], sum = 0;
    for (int step = 0; step < length; ++step, at = follow(at)) sum += value_of(at);
    sums[i] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int walkers = int(args.get("walkers", 270336)), length = int(args.get("length", 64));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(walkers > 0 && walkers <= 16777216 && walkers % 16 == 0 && length > 0 && length <= 65536, "arguments out of range");
    if (!fix) walkers /= 16, length *= 16;
    Node* nodes = device_alloc<Node>(size_t(1) << kLog);
    uint32_t *heads = device_alloc<uint32_t>(walkers), *sums = device_alloc<uint32_t>(walkers), *ref = device_alloc<uint32_t>(walkers);
    make_lists<<<1 << (kLog - 8), 256>>>(nodes);
    fill_uniform(heads, walkers, s, 0.0f, float(1 << kLog));
    reference_lists<<<(walkers + 255) / 256, 256>>>(heads, ref, walkers, length);
    poison(sums, size_t(walkers) * 4);
    finish();
    int threads = fix ? 256 : 128;
    auto launch = [&] {
        walk_lists<<<(walkers + threads - 1) / threads, threads>>>(reinterpret_cast<const uint2*>(nodes), heads, sums, walkers, length);
    };
    launch();
    finish();
    double error = device_error(sums, ref, walkers);
    return report("faults/g-lists", median_us(launch, reps), 0, 8.0 * double(walkers) * length, error, 0);
}
