// Fluxes over the edges of an unstructured mesh: the difference of two nodes' values times the edge's conductance, and the sum of
// squares. `fault` has the nodes numbered at random, `fix` along the edges; the kernel is the same.
#include "h_harness.cuh"

struct Edges {
    const int2* ends;
    const float* conductance;
    int count;
};

__device__ __forceinline__ void add_residual(float square, double* residual) {
    __shared__ float warps[8];
    for (int s = 16; s; s >>= 1) square += __shfl_xor_sync(0xffffffffu, square, s);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = square;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (float w : warps) sum += w;
        atomicAdd(residual + blockIdx.x % 64, sum);
    }
}

__global__ void __launch_bounds__(256) edge_flux(Edges edges, const float* __restrict__ potential, float* __restrict__ flux, double* residual) {
    int e = blockIdx.x * 256 + threadIdx.x;
    float square = 0;
    if (e < edges.count) {
        int2 ends = edges.ends[e];
        float f = (potential[ends.x] - potential[ends.y]) * edges.conductance[e];
        flux[e] = f;
        square = f * f;
    }
    add_residual(square, residual);
}

__global__ void make_mesh(int2* ends, int count, int nodes, bool ordered, unsigned long long key) {
    for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < count; e += gridDim.x * blockDim.x) {
        unsigned long long h = diagnose_hash(key + e);
        if (ordered) {
            int near = int((long long)e * nodes / count);
            ends[e] = make_int2(min(near + int(h % 16), nodes - 1), max(near - int((h >> 32) % 48), 0));
        } else {
            ends[e] = make_int2(int(unsigned(h) % unsigned(nodes)), int(unsigned(h >> 32) % unsigned(nodes)));
        }
    }
}

struct Reference {
    Edges edges;
    const float* potential;
    __device__ double operator()(size_t e) const {
        int2 ends = edges.ends[e];
        return (double(potential[ends.x]) - double(potential[ends.y])) * double(edges.conductance[e]);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int count = positive(args, "edges", 50331648, 1 << 28), nodes = positive(args, "nodes", 50331648, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int2* ends = device_alloc<int2>(count);
    float *conductance = device_alloc<float>(count), *potential = device_alloc<float>(nodes), *flux = device_alloc<float>(count);
    double* residual = device_alloc<double>(64);
    make_mesh<<<2112, 256>>>(ends, count, nodes, fix, key);
    fill_uniform(conductance, count, key + 1, 0.5f, 2.0f);
    fill_uniform(potential, nodes, key + 2, 0.0f, 10.0f);
    poison(flux, size_t(count) * sizeof(float));
    Edges edges{ends, conductance, count};
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(residual, 0, 64 * sizeof(double)));
        edge_flux<<<blocks_for(count, 256), 256>>>(edges, potential, flux, residual);
    };
    launch_once(launch);
    double error = device_error(flux, count, Reference{edges, potential}), squares = 0, sum = 0;
    for (float f : to_host(flux, count)) squares += double(f) * f;
    for (double r : to_host(residual, 64)) sum += r;
    double off = std::fabs(sum - squares) / squares;
    error = off <= error ? error : off;
    return report("faults/n-mesh", median_us(launch, reps), 0, 16.0 * count + 4.0 * nodes, error, 1e-4);
}
