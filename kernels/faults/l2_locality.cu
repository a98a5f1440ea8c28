// Distance of every chunk of the data to eight levels, a block a (chunk, level): the data swept once a level, or all
// levels of a group of chunks that L2 holds before the next group.
#include "memory.cuh"

constexpr int LEVELS = 8, CHUNK = 16384, GROUP = 256;  // 64 KB a chunk, 16 MB a group

__device__ float level_value(int level) { return 0.1f + 0.1f * level; }

__device__ void chunk_distance(const float4* __restrict__ data, float* __restrict__ out, unsigned chunks,
                               unsigned chunk, int level) {
    __shared__ float parts[8];
    const float4* in = data + size_t(chunk) * (CHUNK / 4) + threadIdx.x;
    float q = level_value(level), total = 0;
#pragma unroll 8
    for (int i = 0; i < CHUNK / 4; i += 256) {
        float4 v = in[i];
        total += (fabsf(v.x - q) + fabsf(v.y - q)) + (fabsf(v.z - q) + fabsf(v.w - q));
    }
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) total += parts[w];
        out[size_t(level) * chunks + chunk] = total;
    }
}

// A level's sweep is 512 MB by default: when the next level comes, nothing of it is left in L2.
__global__ void __launch_bounds__(256) distance_sweeps(const float4* data, float* out, unsigned chunks) {
    chunk_distance(data, out, chunks, blockIdx.x % chunks, blockIdx.x / chunks);
}

__global__ void __launch_bounds__(256) distance_groups(const float4* data, float* out, unsigned chunks) {
    unsigned group = blockIdx.x / (GROUP * LEVELS), inside = blockIdx.x % (GROUP * LEVELS);
    chunk_distance(data, out, chunks, group * GROUP + inside % GROUP, inside / GROUP);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 128 << 20, CHUNK * GROUP), chunks = n / CHUNK;
    args.done();
    auto data = device_alloc<float>(n), out = device_alloc<float>(chunks * LEVELS);
    fill_uniform(data, n, s, 0, 1);
    poison(out, chunks * LEVELS * 4);
    auto vectors = reinterpret_cast<const float4*>(data);
    auto launch = [&] {
        if (fault) distance_sweeps<<<unsigned(chunks * LEVELS), 256>>>(vectors, out, unsigned(chunks));
        else distance_groups<<<unsigned(chunks * LEVELS), 256>>>(vectors, out, unsigned(chunks));
    };
    run_once(launch);
    auto h = to_host(data, n);
    std::vector<double> ref(chunks * LEVELS);
    for (size_t c = 0; c < chunks; ++c) {
        double total[LEVELS] = {};
        for (size_t i = c * CHUNK; i < (c + 1) * CHUNK; ++i)
            for (int k = 0; k < LEVELS; ++k) total[k] += std::fabs(double(h[i]) - double(0.1f + 0.1f * k));
        for (int k = 0; k < LEVELS; ++k) ref[k * chunks + c] = total[k];
    }
    double error = relative_error(to_host(out, chunks * LEVELS), ref);
    return report(fault ? "faults/distance-sweeps" : "faults/distance-groups", median_us(launch, r), 0,
                  4.0 * n, error, 1e-5);
}
