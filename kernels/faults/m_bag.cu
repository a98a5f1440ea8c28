// Embedding bag: the sum of 64 rows (256 floats) of a table that stays in the L2 cache, one warp a bag.
#include "h_harness.cuh"

constexpr int kDim = 256, kBag = 64;

__device__ __forceinline__ void add(float4& a, float4 b) {
    a = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ void __launch_bounds__(256) embedding_bag(const float4* __restrict__ table, const int* __restrict__ ids, float4* __restrict__ out,
                                                     int bags) {
    int bag = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (bag >= bags) return;
    float4 left = {}, right = {};
    for (int half = 0; half < kBag; half += 32) {
        int id = ids[size_t(bag) * kBag + half + lane];
#pragma unroll 4
        for (int i = 0; i < 32; ++i) {
            const float4* row = table + size_t(__shfl_sync(0xffffffffu, id, i)) * (kDim / 4);
            add(left, row[lane]);
            add(right, row[32 + lane]);
        }
    }
    __stcs(out + size_t(bag) * (kDim / 4) + lane, left);
    __stcs(out + size_t(bag) * (kDim / 4) + 32 + lane, right);
}

struct Reference {
    const float* table;
    const int* ids;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int j = 0; j < kBag; ++j) sum += double(table[size_t(ids[i / kDim * kBag + j]) * kDim + i % kDim]);
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int bags = positive(args, "bags", 65536, 1 << 21), rows = positive(args, "rows", 12288, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float *table = device_alloc<float>(size_t(rows) * kDim), *out = device_alloc<float>(size_t(bags) * kDim);
    int* ids = device_alloc<int>(size_t(bags) * kBag);
    fill_uniform(table, size_t(rows) * kDim, key, -1.0f, 1.0f);
    fill_uniform(ids, size_t(bags) * kBag, key + 1, 0.0f, float(rows));
    poison(out, size_t(bags) * kDim * sizeof(float));
    auto launch = [&] {
        embedding_bag<<<blocks_for(bags, 8), 256>>>(reinterpret_cast<float4*>(table), ids, reinterpret_cast<float4*>(out), bags);
    };
    launch_once(launch);
    double error = device_error(out, size_t(bags) * kDim, Reference{table, ids});
    return report("faults/m-bag", median_us(launch, reps), 0, double(bags) * kBag * kDim * 4, error, 1e-5);
}
