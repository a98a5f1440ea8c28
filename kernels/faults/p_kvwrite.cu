// Puts the new key and value of each sequence (one token a sequence) into its slot of a paged cache.
// --variant fault: the layout of an early server, keys [page][head][channel / 8][16][8] and values [page][head][channel][16];
// fix: [page][head][16][channel] for both.
#include "p_harness.cuh"

constexpr int kDim = 128, kPage = 16;

struct Pools {
    __nv_bfloat16 *keys, *values;
    int heads;
};

__global__ void __launch_bounds__(256) reshape_and_cache(const __nv_bfloat16* __restrict__ key, const __nv_bfloat16* __restrict__ value,
                                                         Pools pools, const int* __restrict__ slots) {
    int token = blockIdx.x, slot = slots[token];
    if (slot < 0) return;  // padded entry of the batch
    int page = slot / kPage, at = slot % kPage, width = pools.heads * kDim;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        int head = i / kDim, channel = i % kDim;
        size_t base = (size_t(page) * pools.heads + head) * kPage * kDim;
        pools.keys[base + (channel / 8) * kPage * 8 + at * 8 + channel % 8] = key[size_t(token) * width + i];
        pools.values[base + channel * kPage + at] = value[size_t(token) * width + i];
    }
}

__global__ void __launch_bounds__(256) reshape_and_cache_rows(const __nv_bfloat16* __restrict__ key,
                                                              const __nv_bfloat16* __restrict__ value, Pools pools,
                                                              const int* __restrict__ slots) {
    int token = blockIdx.x, slot = slots[token];
    if (slot < 0) return;
    int page = slot / kPage, at = slot % kPage, width = pools.heads * kDim;
    for (int i = threadIdx.x; i < width / 4; i += blockDim.x) {
        int head = i * 4 / kDim, channel = i * 4 % kDim;
        size_t to = ((size_t(page) * pools.heads + head) * kPage + at) * kDim + channel;
        *reinterpret_cast<uint2*>(pools.keys + to) = reinterpret_cast<const uint2*>(key + size_t(token) * width)[i];
        *reinterpret_cast<uint2*>(pools.values + to) = reinterpret_cast<const uint2*>(value + size_t(token) * width)[i];
    }
}

// Reads the pools back into [token][head][channel].
__global__ void read_back(Pools pools, const int* slots, __nv_bfloat16* key, __nv_bfloat16* value, bool rows) {
    int token = blockIdx.x, slot = slots[token], page = slot / kPage, at = slot % kPage, width = pools.heads * kDim;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        int head = i / kDim, channel = i % kDim;
        size_t base = (size_t(page) * pools.heads + head) * kPage * kDim, plain = base + at * kDim + channel;
        key[size_t(token) * width + i] = pools.keys[rows ? plain : base + channel / 8 * kPage * 8 + at * 8 + channel % 8];
        value[size_t(token) * width + i] = pools.values[rows ? plain : base + channel * kPage + at];
    }
}

struct Same {
    const __nv_bfloat16* from;
    __device__ double operator()(size_t i) const { return double(__bfloat162float(from[i])); }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 32768, 65536), heads = positive(args, "heads", 8, 32);
    int reps = repeats(args);
    unsigned long long seed_key = seed(args);
    args.done();
    size_t n = size_t(tokens) * heads * kDim, pool = n * kPage;
    require(pool * 4 < 7000000000ull, "--tokens times --heads is too large");
    auto *key = device_alloc<__nv_bfloat16>(n), *value = device_alloc<__nv_bfloat16>(n);
    auto *key_back = device_alloc<__nv_bfloat16>(n), *value_back = device_alloc<__nv_bfloat16>(n);
    Pools pools{device_alloc<__nv_bfloat16>(pool), device_alloc<__nv_bfloat16>(pool), heads};
    fill_uniform(key, n, seed_key, -1.0f, 1.0f);
    fill_uniform(value, n, seed_key + 1, -1.0f, 1.0f);
    std::vector<int> order = p_permutation(tokens, seed_key + 2), slots(tokens);
    for (int i = 0; i < tokens; ++i) slots[i] = order[i] * kPage + int(diagnose_hash(seed_key + 3 + i) % kPage);
    int* device_slots = to_device(slots);
    poison(pools.keys, pool * 2);
    poison(pools.values, pool * 2);
    auto launch = [&] {
        auto kernel = fix ? reshape_and_cache_rows : reshape_and_cache;
        kernel<<<tokens, 256>>>(key, value, pools, device_slots);
    };
    launch_once(launch);
    read_back<<<tokens, 256>>>(pools, device_slots, key_back, value_back, fix);
    CHECK_CUDA(cudaGetLastError());
    double error = std::max(device_error(key_back, n, Same{key}), device_error(value_back, n, Same{value}));
    return report("faults/p-kvwrite", median_us(launch, reps), 0, 8.0 * n, error, 0);
}
