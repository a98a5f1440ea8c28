// Smith-Waterman score of one query against many sequences, a sequence a thread; the row of scores in `fault` has any length
// up to 64, in `fix` 48.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kMostQuery = 64, kQuery = 48, kTarget = 64, kMatch = 2, kMiss = -1, kGap = -1;
__constant__ int cQuery[kMostQuery];

__device__ inline int base_at(uint4 packed, int i) {
    unsigned word = i < 16 ? packed.x : i < 32 ? packed.y : i < 48 ? packed.z : packed.w;
    return word >> (2 * (i & 15)) & 3;
}

__global__ void __launch_bounds__(128) align(const uint4* __restrict__ targets, int* __restrict__ scores, int query) {
    int id = blockIdx.x * 128 + threadIdx.x;
    uint4 packed = targets[id];
    int row[kMostQuery], best = 0;
    for (int j = 0; j < query; ++j) row[j] = 0;
    for (int i = 0; i < kTarget; ++i) {
        int letter = base_at(packed, i), diagonal = 0, left = 0;
        for (int j = 0; j < query; ++j) {
            int up = row[j], score = cQuery[j] == letter ? kMatch : kMiss;
            left = max(max(diagonal + score, 0), max(up, left) + kGap);
            diagonal = up;
            row[j] = left;
            best = max(best, left);
        }
    }
    scores[id] = best;
}

__global__ void __launch_bounds__(128) align_fixed(const uint4* __restrict__ targets, int* __restrict__ scores) {
    int id = blockIdx.x * 128 + threadIdx.x;
    uint4 packed = targets[id];
    int row[kQuery], best = 0;
#pragma unroll
    for (int j = 0; j < kQuery; ++j) row[j] = 0;
#pragma unroll 1
    for (int i = 0; i < kTarget; ++i) {
        int letter = base_at(packed, i), diagonal = 0, left = 0;
#pragma unroll
        for (int j = 0; j < kQuery; ++j) {
            int up = row[j], score = cQuery[j] == letter ? kMatch : kMiss;
            left = max(max(diagonal + score, 0), max(up, left) + kGap);
            diagonal = up;
            row[j] = left;
            best = max(best, left);
        }
    }
    scores[id] = best;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 540672, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 128 == 0, "--n must be a multiple of 128");
    std::vector<int> query(kMostQuery);
    for (int j = 0; j < kMostQuery; ++j) query[j] = int(diagnose_hash(key + 77 + j) % 4);
    CHECK_CUDA(cudaMemcpyToSymbol(cQuery, query.data(), kMostQuery * sizeof(int)));
    uint8_t* packed = device_alloc<uint8_t>(size_t(n) * 16);
    int* scores = device_alloc<int>(n);
    fill_uniform(packed, size_t(n) * 16, key, 0.f, 1.f);
    poison(scores, size_t(n) * sizeof(int));
    auto targets = reinterpret_cast<const uint4*>(packed);
    auto launch = [&] {
        if (fix) align_fixed<<<n / 128, 128>>>(targets, scores);
        else align<<<n / 128, 128>>>(targets, scores, kQuery);
    };
    launch_once(launch);
    std::vector<uint8_t> bytes = to_host(packed, size_t(n) * 16);
    auto wanted = [&](size_t id) {
        std::vector<int> h((kTarget + 1) * (kQuery + 1), 0);
        int best = 0;
        for (int i = 1; i <= kTarget; ++i)
            for (int j = 1; j <= kQuery; ++j) {
                int letter = bytes[id * 16 + (i - 1) / 4] >> (2 * ((i - 1) % 4)) & 3;
                auto at = [&](int a, int b) -> int& { return h[a * (kQuery + 1) + b]; };
                int score = query[j - 1] == letter ? kMatch : kMiss;
                at(i, j) = std::max({0, at(i - 1, j - 1) + score, at(i - 1, j) + kGap, at(i, j - 1) + kGap});
                best = std::max(best, at(i, j));
            }
        return best;
    };
    double error = sampled_error(to_host(scores, n), wanted, 4000);
    return report("faults/k-helix", median_us(launch, reps), 6.0 * n * kQuery * kTarget, 0, error, 0);
}
