// Sorts groups of 64 floats, a thread a group; element k of group g is at [k][g].
#include "h_harness.cuh"

constexpr int kGroup = 64;

__global__ void __launch_bounds__(128) sort_groups(const float* __restrict__ in, float* __restrict__ out, int groups) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    float v[kGroup];
    for (int k = 0; k < kGroup; ++k) {
        float x = in[size_t(k) * groups + g];
        int at = k;
        while (at > 0 && v[at - 1] > x) {
            v[at] = v[at - 1];
            --at;
        }
        v[at] = x;
    }
    for (int k = 0; k < kGroup; ++k) out[size_t(k) * groups + g] = v[k];
}

// One step of Batcher's odd-even merge sort.
template <int P, int K>
__device__ void merge_step(float (&v)[kGroup]) {
#pragma unroll
    for (int a = 0; a + K < kGroup; ++a)
        if (a >= K % P && (a - K % P) % (2 * K) < K && a / (2 * P) == (a + K) / (2 * P)) {
            float low = fminf(v[a], v[a + K]), high = fmaxf(v[a], v[a + K]);
            v[a] = low;
            v[a + K] = high;
        }
    if constexpr (K > 1) merge_step<P, K / 2>(v);
    else if constexpr (P * 2 < kGroup) merge_step<P * 2, P * 2>(v);
}

__global__ void __launch_bounds__(128) sort_groups_network(const float* __restrict__ in, float* __restrict__ out,
                                                           int groups) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    float v[kGroup];
#pragma unroll
    for (int k = 0; k < kGroup; ++k) v[k] = in[size_t(k) * groups + g];
    merge_step<1, 1>(v);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) out[size_t(k) * groups + g] = v[k];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int groups = positive(args, "groups", 304128, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(groups) * kGroup;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * 4);
    auto launch = [&] {
        if (fix) sort_groups_network<<<blocks_for(groups, 128), 128>>>(in, out, groups);
        else sort_groups<<<blocks_for(groups, 128), 128>>>(in, out, groups);
    };
    launch_once(launch);
    std::vector<float> before = to_host(in, n), after = to_host(out, n);
    double wrong = 0;
    for (int g = 0; g < groups; ++g) {
        float v[kGroup];
        for (int k = 0; k < kGroup; ++k) v[k] = before[size_t(k) * groups + g];
        std::sort(v, v + kGroup);
        for (int k = 0; k < kGroup; ++k) wrong += !(after[size_t(k) * groups + g] == v[k]);
    }
    double us = median_us(launch, reps);
    return report("faults/h-ranks", us, 0, 8.0 * double(n), wrong, 0);
}
