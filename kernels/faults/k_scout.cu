// Counts the intervals that overlap each query, down a tree of bounds, with a stack a thread in shared memory.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kBlock = 128;

// Node k (from 1) holds the bounds of nodes 2k and 2k + 1; nodes from `leaves` on are the intervals.
__global__ void __launch_bounds__(kBlock) overlaps(const float2* __restrict__ nodes, const float* __restrict__ queries, int* __restrict__ counts, int leaves, float width) {
    extern __shared__ int stack[];
    int t = threadIdx.x, id = blockIdx.x * kBlock + t, top = 1, count = 0;
    float low = queries[id], high = low + width;
    stack[t] = 1;
    while (top > 0) {
        int node = stack[--top * kBlock + t];
        float2 bounds = nodes[node];
        if (bounds.x > high || bounds.y < low) continue;
        if (node >= leaves) {
            ++count;
        } else {
            stack[top++ * kBlock + t] = 2 * node + 1;
            stack[top++ * kBlock + t] = 2 * node;
        }
    }
    counts[id] = count;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int levels = positive(args, "levels", 20, 22), n = positive(args, "n", 540672, 1 << 24), depth = positive(args, "depth", 256, 440);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % kBlock == 0 && levels >= 6 && depth >= levels + 2, "--n must be a multiple of 128, --levels at least 6, --depth at least levels + 2");
    int leaves = 1 << levels;
    float unit = 1.0f / leaves, width = 4 * unit;
    std::vector<float2> tree(2 * size_t(leaves), make_float2(0, 0));
    for (int k = 0; k < leaves; ++k) {
        unsigned long long h = diagnose_hash(key + k);
        float start = (k + float(h & 0xffff) / 65536) * unit;
        tree[leaves + k] = make_float2(start, start + 2 * unit * float(h >> 48) / 65536);
    }
    for (int k = leaves - 1; k > 0; --k) tree[k] = make_float2(std::min(tree[2 * k].x, tree[2 * k + 1].x), std::max(tree[2 * k].y, tree[2 * k + 1].y));
    float2* nodes = device_alloc<float2>(tree.size());
    CHECK_CUDA(cudaMemcpy(nodes, tree.data(), tree.size() * sizeof(float2), cudaMemcpyHostToDevice));
    float* queries = device_alloc<float>(n);
    int* counts = device_alloc<int>(n);
    fill_uniform(queries, n, key + 3, 0.0f, 1.0f);
    poison(counts, size_t(n) * sizeof(int));
    size_t bytes = size_t(depth) * kBlock * sizeof(int);
    allow_smem(overlaps, bytes);
    auto launch = [&] { overlaps<<<n / kBlock, kBlock, bytes>>>(nodes, queries, counts, leaves, width); };
    launch_once(launch);
    std::vector<float> from = to_host(queries, n);
    std::vector<int> got = to_host(counts, n);
    double wrong = 0;
    for (int i = 0; i < n; ++i) {
        float low = from[i], high = low + width;
        int middle = int(low * leaves), want = 0;
        for (int k = std::max(0, middle - 8); k < std::min(leaves, middle + 12); ++k) want += tree[leaves + k].x <= high && tree[leaves + k].y >= low;
        wrong += got[i] != want;
    }
    return report("faults/k-scout", median_us(launch, reps), 0, 8.0 * n, wrong, 0);
}
