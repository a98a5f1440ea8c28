// Octaves of router probabilities, weighted by the number of times each token is repeated: the table from which thresholds are chosen.
#include "p_harness.cuh"

constexpr int kBins = 16;

__device__ __forceinline__ int octave(float p) {
    int below = 127 - int(__float_as_uint(p) >> 23);  // 1 for [0.5, 1)
    return min(max(below - 1, 0), kBins - 1);
}

__global__ void __launch_bounds__(256) octave_table(const float4* __restrict__ p, const int4* __restrict__ repeats, unsigned* __restrict__ table,
                                                    int quads) {
    __shared__ unsigned bins[kBins];
    if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < quads; i += gridDim.x * 256) {
        float4 v = p[i];
        int4 w = repeats[i];
        atomicAdd(&bins[octave(v.x)], unsigned(w.x));
        atomicAdd(&bins[octave(v.y)], unsigned(w.y));
        atomicAdd(&bins[octave(v.z)], unsigned(w.z));
        atomicAdd(&bins[octave(v.w)], unsigned(w.w));
    }
    __syncthreads();
    if (threadIdx.x < kBins) atomicAdd(&table[threadIdx.x], bins[threadIdx.x]);
}

// A column of its own for every thread: neighbours in a warp use different banks and nothing is shared.
__global__ void __launch_bounds__(256) octave_table_columns(const float4* __restrict__ p, const int4* __restrict__ repeats,
                                                            unsigned* __restrict__ table, int quads) {
    __shared__ unsigned bins[kBins][256];
    for (int b = 0; b < kBins; ++b) bins[b][threadIdx.x] = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < quads; i += gridDim.x * 256) {
        float4 v = p[i];
        int4 w = repeats[i];
        bins[octave(v.x)][threadIdx.x] += unsigned(w.x);
        bins[octave(v.y)][threadIdx.x] += unsigned(w.y);
        bins[octave(v.z)][threadIdx.x] += unsigned(w.z);
        bins[octave(v.w)][threadIdx.x] += unsigned(w.w);
    }
    __syncthreads();
    for (int b = threadIdx.x / 32; b < kBins; b += 8) {
        unsigned sum = 0;
        for (int k = threadIdx.x % 32; k < 256; k += 32) sum += bins[b][k];
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (threadIdx.x % 32 == 0) atomicAdd(&table[b], sum);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 27);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float* p = device_alloc<float>(n);
    int* count = device_alloc<int>(n);
    unsigned* table = device_alloc<unsigned>(kBins);
    fill_uniform(p, size_t(n), key, 0.0f, 1.0f);
    fill_uniform(count, size_t(n), key + 1, 1.0f, 9.0f);
    CHECK_CUDA(cudaMemset(table, 0, kBins * 4));
    auto launch = [&] {
        auto kernel = fix ? octave_table_columns : octave_table;
        kernel<<<132 * 8, 256>>>(reinterpret_cast<float4*>(p), reinterpret_cast<int4*>(count), table, n / 4);
    };
    launch_once(launch);
    std::vector<unsigned> out = to_host(table, kBins);
    std::vector<float> hp = to_host(p, size_t(n));
    std::vector<int> hc = to_host(count, size_t(n));
    std::vector<double> ref(kBins);
    for (size_t i = 0; i < size_t(n); ++i) {
        int exponent = 0;
        std::frexp(hp[i], &exponent);  // p = m 2^exponent, m in [0.5, 1): exponent 0 is the first octave
        int b = hp[i] == 0 ? kBins - 1 : std::min(std::max(-exponent, 0), kBins - 1);
        ref[b] += hc[i];
    }
    double wrong = 0;
    for (int b = 0; b < kBins; ++b) wrong = std::max(wrong, std::fabs(out[b] - ref[b]));
    return report("faults/p-octave", median_us(launch, reps), 0, 8.0 * n, wrong, 0);
}
