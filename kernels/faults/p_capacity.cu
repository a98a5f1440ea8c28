// Experts' first layer with a capacity: every expert has `capacity` slots, of which `count` hold tokens and the rest zeros (bf16).
// --variant fault: all slots are multiplied; fix: blocks without a token leave.
#include "p_product.cuh"

template <bool ALL>
__global__ void __launch_bounds__(256, 2) expert_linear(const __nv_bfloat16* __restrict__ slots, const __nv_bfloat16* __restrict__ weights,
                                                        const int* __restrict__ count, __nv_bfloat16* __restrict__ out, int capacity, int n, int k) {
    extern __shared__ __align__(1024) unsigned char raw[];
    const int expert = blockIdx.z, first = blockIdx.y * 128;
    if (!ALL && first >= count[expert]) return;
    const uint32_t base = shared_address(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 64;
    const __nv_bfloat16* from_s = slots + (size_t(expert) * capacity + first) * k;
    const __nv_bfloat16* from_w = weights + (size_t(expert) * n + size_t(blockIdx.x) * 128) * k;
    float c[2][8][4];
    p_clear(c);
    p_product<true>(c, base, from_s, from_w, k, row, column, lane);
    p_store(out + (size_t(expert) * capacity + first + row) * n + size_t(blockIdx.x) * 128 + column, n, c, lane,
            [](float v, int) { return fmaxf(v, 0.0f); });
}

// Slots without a token hold zeros; results of slots without a token are not looked at.
__global__ void clear_slots(__nv_bfloat16* data, const int* count, int capacity, int width) {
    int expert = blockIdx.y;
    size_t begin = (size_t(expert) * capacity + count[expert]) * width, end = size_t(expert + 1) * capacity * width;
    for (size_t i = begin + size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += size_t(gridDim.x) * blockDim.x) data[i] = __float2bfloat16(0.0f);
}

struct Reference {
    const __nv_bfloat16 *slots, *weights;
    const int* count;
    int capacity, n, k;
    __device__ double operator()(size_t i) const {
        size_t row = i / n, column = i % n, expert = row / capacity;
        if (int(row % capacity) >= count[expert]) return 0;
        double sum = 0;
        for (int j = 0; j < k; ++j)
            sum += double(__bfloat162float(slots[row * k + j])) * double(__bfloat162float(weights[(expert * n + column) * k + j]));
        return sum > 0 ? sum : 0;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int experts = positive(args, "experts", 64, 1024), capacity = positive(args, "capacity", 512, 8192), tokens = positive(args, "tokens", 8192, 1 << 20);
    int n = positive(args, "n", 2048, 16384), k = positive(args, "k", 2048, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(capacity % 128 == 0 && n % 128 == 0 && k % 64 == 0 && k >= 128, "--capacity and --n must be multiples of 128, --k of 64");
    require(experts % 2 == 0 && tokens % experts == 0 && tokens / experts * 3 / 2 <= capacity, "--tokens must be a multiple of an even --experts and fit");
    std::vector<int> counts(experts);
    for (int e = 0; e < experts; e += 2) {  // what one expert has more its neighbour has less
        int mean = tokens / experts, shift = int(diagnose_hash(key + 7 + e) % unsigned(mean / 2));
        counts[e] = mean + shift;
        counts[e + 1] = mean - shift;
    }
    int* count = to_device(counts);
    size_t rows = size_t(experts) * capacity, weight_count = size_t(experts) * n * k;
    auto *slots = device_alloc<__nv_bfloat16>(rows * k), *weights = device_alloc<__nv_bfloat16>(weight_count), *out = device_alloc<__nv_bfloat16>(rows * n);
    fill_uniform(slots, rows * k, key, -1.0f, 1.0f);
    fill_uniform(weights, weight_count, key + 1, -1.0f, 1.0f);
    clear_slots<<<dim3(64, experts), 256>>>(slots, count, capacity, k);
    poison(out, rows * n * 2);
    auto kernel = fix ? expert_linear<false> : expert_linear<true>;
    p_allow(reinterpret_cast<const void*>(kernel), kStages * kStage);
    auto launch = [&] { kernel<<<dim3(n / 128, capacity / 128, experts), 256, kStages * kStage>>>(slots, weights, count, out, capacity, n, k); };
    launch_once(launch);
    clear_slots<<<dim3(64, experts), 256>>>(out, count, capacity, n);
    double error = sample_error(out, rows * n, Reference{slots, weights, count, capacity, n, k}, 16384);
    return report("faults/p-capacity", median_us(launch, reps), 2.0 * tokens * n * k, 0, error, 4e-3);
}
