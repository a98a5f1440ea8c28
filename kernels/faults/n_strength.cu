// Strength and disparity of the vertices of a weighted graph, a warp a vertex; the vertices come sorted by degree (a hub first).
// `fault` gives every block the same number of vertices, `fix` the same number of edges.
#include "h_harness.cuh"

constexpr int kBlock = 256, kGrid = 528;

struct Graph {
    const int* first;  // vertices + 1, in quads of edges
    const float4* weight;
};

// Vertices [begin, end) by the warps of a block.
__device__ __forceinline__ void vertices(const Graph& graph, float2* __restrict__ out, int begin, int end) {
    int lane = threadIdx.x % 32;
    for (int v = begin + threadIdx.x / 32; v < end; v += kBlock / 32) {
        float sum = 0, square = 0;
        int last = graph.first[v + 1];
#pragma unroll 8
        for (int q = graph.first[v] + lane; q < last; q += 32) {
            float4 w = graph.weight[q];
            sum += (w.x + w.y) + (w.z + w.w);
            square += (w.x * w.x + w.y * w.y) + (w.z * w.z + w.w * w.w);
        }
        for (int s = 16; s; s >>= 1) {
            sum += __shfl_xor_sync(0xffffffffu, sum, s);
            square += __shfl_xor_sync(0xffffffffu, square, s);
        }
        if (lane == 0) out[v] = make_float2(sum, square / (sum * sum));
    }
}

__global__ void __launch_bounds__(kBlock, 4) strength_by_vertices(Graph graph, float2* __restrict__ out, int count) {
    int each = (count + gridDim.x - 1) / gridDim.x, begin = min(int(blockIdx.x) * each, count);
    vertices(graph, out, begin, min(begin + each, count));
}

__global__ void __launch_bounds__(kBlock, 4) strength_by_edges(Graph graph, float2* __restrict__ out, const int* __restrict__ bounds) {
    vertices(graph, out, bounds[blockIdx.x], bounds[blockIdx.x + 1]);
}

// A block a vertex.
__global__ void reference_strength(Graph graph, double2* out) {
    __shared__ double sums[2];
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    int v = blockIdx.x;
    double sum = 0, square = 0;
    const float* weight = reinterpret_cast<const float*>(graph.weight);
    for (size_t e = size_t(graph.first[v]) * 4 + threadIdx.x; e < size_t(graph.first[v + 1]) * 4; e += blockDim.x) {
        sum += double(weight[e]);
        square += double(weight[e]) * double(weight[e]);
    }
    atomicAdd(sums, sum);
    atomicAdd(sums + 1, square);
    __syncthreads();
    if (threadIdx.x == 0) out[v] = make_double2(sums[0], sums[1] / (sums[0] * sums[0]));
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};


// The disparities alone: they are small, an error of theirs must count.
__global__ void second_column(const float2* in, const double2* ref, float* a, double* b, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        a[i] = in[i].y;
        b[i] = ref[i].y;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int count = positive(args, "vertices", 262144, 1 << 22), hub = positive(args, "hub", 196000, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    std::vector<int> first(count + 1), bounds(kGrid + 1);
    long long quads = 0;
    for (int v = 0; v < count; ++v) {
        first[v] = int(quads);
        quads += 1 + (long long)(hub / 4 / std::sqrt(v + 1.0));
        require(quads < (1ll << 29), "--hub times the root of --vertices is too large");
    }
    first[count] = int(quads);
    for (int b = 0; b <= kGrid; ++b)
        bounds[b] = int(std::lower_bound(first.begin(), first.end(), int(quads * b / kGrid)) - first.begin());
    int *first_dev = device_alloc<int>(count + 1), *bounds_dev = device_alloc<int>(kGrid + 1);
    CHECK_CUDA(cudaMemcpy(first_dev, first.data(), (count + 1) * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(bounds_dev, bounds.data(), (kGrid + 1) * sizeof(int), cudaMemcpyHostToDevice));
    float* weight = device_alloc<float>(size_t(quads) * 4);
    float2* out = device_alloc<float2>(count);
    double2* ref = device_alloc<double2>(count);
    fill_uniform(weight, size_t(quads) * 4, key, 0.1f, 2.0f);
    poison(out, size_t(count) * sizeof(float2));
    Graph graph{first_dev, reinterpret_cast<float4*>(weight)};
    auto launch = [&] {
        if (fix) strength_by_edges<<<kGrid, kBlock>>>(graph, out, bounds_dev);
        else strength_by_vertices<<<kGrid, kBlock>>>(graph, out, count);
    };
    launch_once(launch);
    reference_strength<<<count, 64>>>(graph, ref);
    CHECK_CUDA(cudaGetLastError());
    float* a = device_alloc<float>(count);
    double* b = device_alloc<double>(count);
    second_column<<<1056, 256>>>(out, ref, a, b, count);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double both = device_error(reinterpret_cast<float*>(out), size_t(count) * 2, Reference{reinterpret_cast<double*>(ref)});
    double disparity = device_error(a, count, Reference{b}), error = both <= disparity ? disparity : both;
    return report("faults/n-strength", median_us(launch, reps), 0, 16.0 * double(quads), error, 1e-4);
}
