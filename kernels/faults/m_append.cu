// Appends the keys and values of one new token a sequence (8 heads of 128, bf16) to a paged cache: slot[sequence] says where.
#include "h_harness.cuh"

constexpr int kWidth = 8 * 128, kVectors = kWidth / 8;

__global__ void __launch_bounds__(kVectors) append_cache(const uint4* __restrict__ k, const uint4* __restrict__ v,
                                                         const int* __restrict__ slot, uint4* __restrict__ key_cache,
                                                         uint4* __restrict__ value_cache) {
    size_t to = size_t(slot[blockIdx.x]) * kVectors + threadIdx.x, from = size_t(blockIdx.x) * kVectors + threadIdx.x;
    key_cache[to] = k[from];
    value_cache[to] = v[from];
}

struct Reference {
    const __nv_bfloat16* rows;
    const int* sequence;  // of each slot, or -1
    __device__ double operator()(size_t i) const {
        int s = sequence[i / kWidth];
        return s < 0 ? 0.0 : double(__bfloat162float(rows[size_t(s) * kWidth + i % kWidth]));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int sequences = positive(args, "sequences", 32, 4096), slots = positive(args, "slots", 32768, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(sequences <= slots, "--slots must not be fewer than --sequences");
    std::vector<int> slot(sequences), owner(slots, -1);
    for (int s = 0; s < sequences; ++s) {
        int at = int(diagnose_hash(key + 7 + s) % slots);
        while (owner[at] >= 0) at = (at + 1) % slots;
        owner[at] = s;
        slot[s] = at;
    }
    size_t n = size_t(sequences) * kWidth, m = size_t(slots) * kWidth;
    auto *k = device_alloc<__nv_bfloat16>(n), *v = device_alloc<__nv_bfloat16>(n);
    auto *keys = device_alloc<__nv_bfloat16>(m), *values = device_alloc<__nv_bfloat16>(m);
    int *device_slot = device_alloc<int>(sequences), *device_owner = device_alloc<int>(slots);
    fill_uniform(k, n, key, -1.0f, 1.0f);
    fill_uniform(v, n, key + 1, -1.0f, 1.0f);
    CHECK_CUDA(cudaMemset(keys, 0, m * 2));
    CHECK_CUDA(cudaMemset(values, 0, m * 2));
    CHECK_CUDA(cudaMemcpy(device_slot, slot.data(), sequences * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_owner, owner.data(), slots * sizeof(int), cudaMemcpyHostToDevice));
    auto launch = [&] {
        append_cache<<<sequences, kVectors>>>(reinterpret_cast<uint4*>(k), reinterpret_cast<uint4*>(v), device_slot,
                                              reinterpret_cast<uint4*>(keys), reinterpret_cast<uint4*>(values));
    };
    launch_once(launch);
    double error = std::max(device_error(keys, m, Reference{k, device_owner}), device_error(values, m, Reference{v, device_owner}));
    return report("faults/m-append", median_us(launch, reps), 0, 8.0 * double(n), error, 0);
}
