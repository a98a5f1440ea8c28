// Each warp searches its segment for a key and stops where it finds it. `fault` looks at 128 bytes a step, `fix` at 4096.
#include "h_harness.cuh"

constexpr unsigned kKey = 0xfedcba98u;

__global__ void __launch_bounds__(256) find(const unsigned* __restrict__ data, int* __restrict__ found, int length) {
    int lane = threadIdx.x % 32, segment = (blockIdx.x * 256 + threadIdx.x) / 32;
    const unsigned* mine = data + size_t(segment) * length;
    int at = -1;
    for (int i = lane; i < length; i += 32) {
        bool hit = mine[i] == kKey;
        if (hit) at = i;
        if (__any_sync(0xffffffffu, hit)) break;
    }
    if (at >= 0) found[segment] = at;
}

__global__ void __launch_bounds__(256) find_wide(const uint4* __restrict__ data, int* __restrict__ found, int length) {
    int lane = threadIdx.x % 32, segment = (blockIdx.x * 256 + threadIdx.x) / 32;
    const uint4* mine = data + size_t(segment) * (length / 4);
    int at = -1;
    for (int base = 0; base < length / 4; base += 256) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = mine[base + j * 32 + lane];
        bool hit = false;
#pragma unroll
        for (int j = 0; j < 8; ++j) hit |= v[j].x == kKey || v[j].y == kKey || v[j].z == kKey || v[j].w == kKey;
        if (__any_sync(0xffffffffu, hit)) {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                int first = (base + j * 32 + lane) * 4;
                if (v[j].x == kKey) at = first;
                if (v[j].y == kKey) at = first + 1;
                if (v[j].z == kKey) at = first + 2;
                if (v[j].w == kKey) at = first + 3;
            }
            break;
        }
    }
    if (at >= 0) found[segment] = at;
}

// One key a segment, in its last fiftieth.
__global__ void plant(unsigned* data, int* where, int segments, int length, unsigned long long key) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= segments) return;
    int at = length - 1 - int(diagnose_hash(key + s) % (length / 50));
    data[size_t(s) * length + at] = kKey;
    where[s] = at;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int segments = positive(args, "segments", 2112, 1 << 20), length = positive(args, "length", 65536, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(segments % 8 == 0 && length % 1024 == 0, "--segments must be a multiple of 8 and --length of 1024");
    size_t n = size_t(segments) * length;
    unsigned* data = device_alloc<unsigned>(n);
    int *found = device_alloc<int>(segments), *where = device_alloc<int>(segments);
    fill_uniform(data, n, key, 0.0f, 2147483648.0f);
    plant<<<blocks_for(segments, 256), 256>>>(data, where, segments, length, key);
    CHECK_CUDA(cudaGetLastError());
    poison(found, size_t(segments) * sizeof(int));
    auto launch = [&] {
        if (fix) find_wide<<<segments / 8, 256>>>(reinterpret_cast<uint4*>(data), found, length);
        else find<<<segments / 8, 256>>>(data, found, length);
    };
    launch_once(launch);
    std::vector<int> got = to_host(found, segments), want = to_host(where, segments);
    double wrong = 0, read = 0;
    for (int s = 0; s < segments; ++s) {
        wrong += got[s] != want[s];
        read += 4.0 * want[s];
    }
    return report("faults/k-canal", median_us(launch, reps), 0, read, wrong, 0);
}
