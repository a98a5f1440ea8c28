// Moves values from faces to cells through a map that stays within 64 neighbours. --variant sets the block.
#include "h_harness.cuh"
#include "pair.cuh"

__global__ void remap(const int2* __restrict__ map, const float* __restrict__ faces, float2* __restrict__ cells, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int2 from = map[i];
    cells[i] = make_float2(scale * faces[from.x], scale * faces[from.y]);
}

// A random odd multiplier and offset permute each group of 64.
__global__ void make_map(int* map, int n, unsigned long long key) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long h = diagnose_hash(key + i / 64);
        map[i] = i / 64 * 64 + int((i % 64 * (h | 1) + (h >> 32)) % 64);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 29);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 512 == 0, "--n must be a multiple of 512");
    int* map = device_alloc<int>(n);
    float *faces = device_alloc<float>(n), *cells = device_alloc<float>(n);
    fill_uniform(faces, n, key, 0.5f, 1.0f);
    make_map<<<2112, 256>>>(map, n, key);
    CHECK_CUDA(cudaGetLastError());
    poison(cells, size_t(n) * sizeof(float));
    int block = fix ? 256 : 32;
    auto launch = [&] { remap<<<n / 2 / block, block>>>(reinterpret_cast<int2*>(map), faces, reinterpret_cast<float2*>(cells), 1.5f); };
    launch_once(launch);
    std::vector<int> from = to_host(map, n);
    std::vector<float> values = to_host(faces, n);
    double error = sampled_error(to_host(cells, n), [&](size_t i) { return 1.5f * values[from[i]]; }, 2000000);
    return report("faults/k-weave", median_us(launch, reps), 0, 12.0 * n, error, 0);
}
