// Private retrieval: every query combines the rows of a small table that its secret bits select, reading all of it.
#include "g_util.cuh"
using namespace held;

constexpr int kRows = 1024, kRowVectors = 512;

__global__ void __launch_bounds__(512) retrieve(const uint4* table, const uint32_t* select, uint4* out) {
    __shared__ uint32_t bits[kRows / 32];
    if (threadIdx.x < kRows / 32) bits[threadIdx.x] = select[blockIdx.x * (kRows / 32) + threadIdx.x];
    __syncthreads();
    uint4 acc = make_uint4(0, 0, 0, 0);
    int first = (blockIdx.x * 88) % kRows;
    for (int i = 0; i < kRows; i += 8) {
        int row = (first + i) % kRows;  // a multiple of 8
        uint4 v[8];
#pragma unroll
        for (int u = 0; u < 8; ++u) v[u] = __ldcg(table + size_t(row + u) * kRowVectors + threadIdx.x);
        uint32_t word = bits[row / 32] >> (row % 32);
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            uint32_t mask = 0u - ((word >> u) & 1u);
            acc.x ^= v[u].x & mask;
            acc.y ^= v[u].y & mask;
            acc.z ^= v[u].z & mask;
            acc.w ^= v[u].w & mask;
        }
    }
    out[blockIdx.x * kRowVectors + threadIdx.x] = acc;
}

__global__ void reference_retrieve(const uint32_t* table, const uint32_t* select, uint32_t* out, int queries) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, words = kRowVectors * 4;
    if (i >= queries * words) return;
    uint32_t acc = 0;
    for (int row = 0; row < kRows; ++row)
        if (select[i / words * (kRows / 32) + row / 32] >> (row % 32) & 1) acc ^= table[size_t(row) * words + i % words];
    out[i] = acc;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int queries = int(args.get("queries", 264));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(queries > 0 && queries <= 65536, "--queries out of range");
    size_t table_bytes = size_t(kRows) * kRowVectors * 16, out_words = size_t(queries) * kRowVectors * 4;
    uint8_t *table = device_alloc<uint8_t>(table_bytes), *select = device_alloc<uint8_t>(size_t(queries) * kRows / 8);
    uint32_t *out = device_alloc<uint32_t>(out_words), *ref = device_alloc<uint32_t>(out_words);
    fill_uniform(table, table_bytes, s, 0.f, 1.f);
    fill_uniform(select, size_t(queries) * kRows / 8, s + 1, 0.f, 1.f);
    reference_retrieve<<<unsigned((out_words + 255) / 256), 256>>>((const uint32_t*)table, (const uint32_t*)select, ref, queries);
    poison(out, out_words * 4);
    finish();
    auto launch = [&] { retrieve<<<queries, 512>>>((const uint4*)table, (const uint32_t*)select, (uint4*)out); };
    launch();
    finish();
    double error = device_error(out, ref, out_words);
    return report("faults/g-retrieve", median_us(launch, reps), 0, double(queries) * double(table_bytes), error, 0);
}
