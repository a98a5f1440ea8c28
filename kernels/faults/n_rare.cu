// Looks tracks up in a tree of nodes with 128 keys, a warp a track: a whole node is read, its rank gives the next one. One track in
// 4096 ends in a node that needs a 128-point transform a lane. `fault` has that path in the kernel (its registers bind all warps),
// `fix` puts such tracks on a list for a second kernel.
#include "h_harness.cuh"

constexpr int kHops = 6, kPoints = 128, kBlock = 128;

struct Tree {
    const uint4* nodes;  // 32 a node
    const float* modes;  // kPoints x 32
    unsigned mask;       // nodes - 1
};

__host__ __device__ inline unsigned next_node(unsigned node, int rank) {
    unsigned h = (node * 129u + unsigned(rank)) * 2654435761u;
    return h ^ h >> 15;
}

__device__ __forceinline__ bool resonant(unsigned node) { return (node & 4095u) == 77u; }

// A fast Walsh transform of the modes, scaled by the lane and the node; the energy of all lanes.
__device__ __forceinline__ float transform(const Tree& tree, unsigned node) {
    int lane = threadIdx.x % 32;
    float m[kPoints], scale = 1.0f + float(node >> 12 & 255u) * 0x1p-8f;
#pragma unroll
    for (int i = 0; i < kPoints; ++i) m[i] = tree.modes[i * 32 + lane];
#pragma unroll
    for (int half = kPoints / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < kPoints; ++i)
            if (!(i & half)) {
                float a = m[i], b = m[i + half] * scale;
                m[i] = a + b;
                m[i + half] = a - b;
            }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPoints; ++i) sum += fabsf(m[i]);
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    return sum * 0x1p-12f;
}

// Goes down the tree; the last node is returned, the sum of ranks added up.
__device__ __forceinline__ unsigned descend(const Tree& tree, unsigned energy, unsigned node, int& ranks) {
    int lane = threadIdx.x % 32;
    for (int hop = 0; hop < kHops; ++hop) {
        uint4 keys = tree.nodes[size_t(node & tree.mask) * 32 + lane];
        int below = (keys.x < energy) + (keys.y < energy) + (keys.z < energy) + (keys.w < energy);
        int rank = __reduce_add_sync(0xffffffffu, below);
        ranks += rank;
        node = next_node(node, rank);
    }
    return node;
}

__global__ void __launch_bounds__(kBlock) tracks_inline(Tree tree, const uint2* __restrict__ tracks, float* __restrict__ out, int n) {
    int track = blockIdx.x * (kBlock / 32) + threadIdx.x / 32, ranks = 0;
    if (track >= n) return;
    uint2 start = tracks[track];
    unsigned node = descend(tree, start.x, start.y, ranks);
    float result = float(ranks);
    if (resonant(node)) result += transform(tree, node);
    if (threadIdx.x % 32 == 0) out[track] = result;
}

__global__ void __launch_bounds__(kBlock) tracks_listed(Tree tree, const uint2* __restrict__ tracks, float* __restrict__ out, int n,
                                                        uint2* __restrict__ list, int* listed) {
    int track = blockIdx.x * (kBlock / 32) + threadIdx.x / 32, ranks = 0;
    if (track >= n) return;
    uint2 start = tracks[track];
    unsigned node = descend(tree, start.x, start.y, ranks);
    if (threadIdx.x % 32 == 0) {
        out[track] = float(ranks);
        if (resonant(node)) list[atomicAdd(listed, 1)] = make_uint2(track, node);
    }
}

__global__ void __launch_bounds__(kBlock) finish_listed(Tree tree, float* out, const uint2* list, const int* listed) {
    for (int i = blockIdx.x * (kBlock / 32) + threadIdx.x / 32; i < *listed; i += gridDim.x * (kBlock / 32)) {
        float more = transform(tree, list[i].y);
        if (threadIdx.x % 32 == 0) out[list[i].x] += more;
    }
}

// A thread a track, in double.
__global__ void reference_tracks(Tree tree, const uint2* tracks, double* out, int n) {
    int track = blockIdx.x * blockDim.x + threadIdx.x;
    if (track >= n) return;
    const unsigned* keys = reinterpret_cast<const unsigned*>(tree.nodes);
    unsigned node = tracks[track].y;
    double result = 0;
    for (int hop = 0; hop < kHops; ++hop) {
        int rank = 0;
        for (int k = 0; k < 128; ++k) rank += keys[size_t(node & tree.mask) * 128 + k] < tracks[track].x;
        result += rank;
        node = next_node(node, rank);
    }
    if (resonant(node)) {
        double m[kPoints], sum = 0, scale = 1.0 + (node >> 12 & 255u) / 256.0;
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < kPoints; ++i) m[i] = tree.modes[i * 32 + lane];
            for (int half = kPoints / 2; half > 0; half /= 2)
                for (int i = 0; i < kPoints; ++i)
                    if (!(i & half)) {
                        double a = m[i], b = m[i + half] * scale;
                        m[i] = a + b;
                        m[i + half] = a - b;
                    }
            for (int i = 0; i < kPoints; ++i) sum += fabs(m[i]);
        }
        result += sum / 4096;
    }
    out[track] = result;
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "tracks", 327680, 1 << 24), log_nodes = positive(args, "log_nodes", 20, 23);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t nodes = size_t(1) << log_nodes;
    uint4* keys = device_alloc<uint4>(nodes * 32);
    float *modes = device_alloc<float>(kPoints * 32), *out = device_alloc<float>(n);
    uint2 *tracks = device_alloc<uint2>(n), *list = device_alloc<uint2>(n);
    int* listed = device_alloc<int>(1);
    double* ref = device_alloc<double>(n);
    fill_uniform(reinterpret_cast<uint8_t*>(keys), nodes * 512, key, 0, 1);
    fill_uniform(reinterpret_cast<uint8_t*>(tracks), size_t(n) * 8, key + 1, 0, 1);
    fill_uniform(modes, kPoints * 32, key + 2, -1.0f, 1.0f);
    poison(out, size_t(n) * sizeof(float));
    Tree tree{keys, modes, unsigned(nodes - 1)};
    unsigned blocks = blocks_for(n, kBlock / 32);
    auto launch = [&] {
        if (!fix) {
            tracks_inline<<<blocks, kBlock>>>(tree, tracks, out, n);
            return;
        }
        CHECK_CUDA(cudaMemsetAsync(listed, 0, sizeof(int)));
        tracks_listed<<<blocks, kBlock>>>(tree, tracks, out, n, list, listed);
        finish_listed<<<132, kBlock>>>(tree, out, list, listed);
    };
    launch_once(launch);
    reference_tracks<<<blocks_for(n, 128), 128>>>(tree, tracks, ref, n);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, n, Reference{ref});
    return report("faults/n-rare", median_us(launch, reps), 0, 512.0 * kHops * n, error, 1e-4);
}
