// The transform of a lossless sound coder: frames of 1024 samples, five levels of the integer 5/3 lifting, in place in shared memory, a warp
// a frame; then the bands in order, folded to unsigned, with their sums (for the parameter of a Rice code). --variant fault: sample i of a
// frame lies in word i, so that level l works on words 2^(l+1) apart; fix: one empty word after every 32.
#include "h_harness.cuh"

constexpr int kFrame = 1024, kLevels = 5, kBands = kLevels + 1, kWarps = 8, kWords = kFrame + kFrame / 32;

__host__ __device__ constexpr int log2_of(int n) { return n > 1 ? 1 + log2_of(n / 2) : 0; }

// Band 0 is the mean, 1 the coarsest detail: the first coefficient of band b > 0 is 16 << b.
__host__ __device__ constexpr int band_of(int coefficient) { return coefficient < 32 ? 0 : log2_of(coefficient) - 4; }

// Where coefficient c of the output lies among the samples once all levels are done.
__host__ __device__ constexpr int origin_of(int c) {
    if (c < 32) return c << kLevels;
    int high = log2_of(c), level = log2_of(kFrame) - 1 - high;
    return (2 * (c - (1 << high)) + 1) << level;
}

__host__ __device__ inline unsigned fold(int v) { return unsigned(v) << 1 ^ unsigned(v >> 31); }

struct Plain {
    static __device__ __forceinline__ int at(int i) { return i; }
};

struct Skewed {
    static __device__ __forceinline__ int at(int i) { return i + (i >> 5); }
};

// One level on pairs (even, odd) that lie 2 * S samples apart; both stay in registers between predict and update.
template <class Layout, int S>
__device__ __forceinline__ void lift(int* v, int lane) {
    constexpr int kRounds = kFrame / (2 * S) / 32;
    const int even = Layout::at(2 * S * lane), odd = Layout::at(2 * S * lane + S), next = Layout::at(2 * S * lane + 2 * S);
    const int previous = Layout::at(2 * S * lane - S), step = Layout::at(64 * S);
    int smooth[kRounds], detail[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
        const bool last = r == kRounds - 1 && lane == 31;
        smooth[r] = v[even + r * step];
        int after = v[last ? even + r * step : next + r * step];
        detail[r] = v[odd + r * step] - ((smooth[r] + after) >> 1);
        v[odd + r * step] = detail[r];
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
        const bool first = r == 0 && lane == 0;
        int before = v[first ? odd : previous + r * step];
        v[even + r * step] = smooth[r] + ((before + detail[r] + 2) >> 2);
    }
    __syncwarp();
}

template <class Layout>
__device__ __forceinline__ void code_frame(const int* __restrict__ samples, unsigned* __restrict__ coded, unsigned* __restrict__ sums, int* v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kFrame / 32; ++r) v[Layout::at(32) * r + lane] = samples[32 * r + lane];
    __syncwarp();
    lift<Layout, 1>(v, lane);
    lift<Layout, 2>(v, lane);
    lift<Layout, 4>(v, lane);
    lift<Layout, 8>(v, lane);
    lift<Layout, 16>(v, lane);
    unsigned band[kBands] = {};
#pragma unroll
    for (int r = 0; r < kFrame / 32; ++r) {
        // All 32 coefficients are of one band: their origins are `apart` samples apart.
        const int apart = r == 0 ? 32 : origin_of(32 * r + 1) - origin_of(32 * r);
        unsigned c = fold(v[Layout::at(origin_of(32 * r) + apart * lane)]);
        coded[32 * r + lane] = c;
        band[band_of(32 * r)] += c;
    }
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
        unsigned sum = __reduce_add_sync(0xffffffffu, band[b]);
        if (lane == b) sums[b] = sum;
    }
}

__global__ void __launch_bounds__(kWarps * 32) lifting_plain(const int* samples, unsigned* coded, unsigned* sums, int frames) {
    __shared__ int words[kWarps][kWords];
    const int frame = blockIdx.x * kWarps + threadIdx.x / 32;
    if (frame >= frames) return;
    code_frame<Plain>(samples + size_t(frame) * kFrame, coded + size_t(frame) * kFrame, sums + size_t(frame) * kBands, words[threadIdx.x / 32]);
}

__global__ void __launch_bounds__(kWarps * 32) lifting_skewed(const int* samples, unsigned* coded, unsigned* sums, int frames) {
    __shared__ int words[kWarps][kWords];
    const int frame = blockIdx.x * kWarps + threadIdx.x / 32;
    if (frame >= frames) return;
    code_frame<Skewed>(samples + size_t(frame) * kFrame, coded + size_t(frame) * kFrame, sums + size_t(frame) * kBands, words[threadIdx.x / 32]);
}

// Number of wrong words of one frame.
static size_t wrong_in(std::vector<int> v, const std::vector<unsigned>& coded, const std::vector<unsigned>& sums) {
    for (int s = 1; s < 32; s *= 2) {
        for (int i = s; i < kFrame; i += 2 * s) v[i] -= (v[i - s] + v[i + s < kFrame ? i + s : i - s]) >> 1;
        for (int i = 0; i < kFrame; i += 2 * s) v[i] += (v[i ? i - s : s] + v[i + s] + 2) >> 2;
    }
    unsigned want[kBands] = {};
    size_t wrong = 0;
    for (int c = 0; c < kFrame; ++c) {
        unsigned f = fold(v[origin_of(c)]);
        wrong += coded[c] != f;
        want[band_of(c)] += f;
    }
    for (int b = 0; b < kBands; ++b) wrong += sums[b] != want[b];
    return wrong;
}

template <class T>
static std::vector<T> row(const T* dev, size_t index, size_t width) {
    return to_host(dev + index * width, width);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int frames = positive(args, "frames", 135168, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(frames) * kFrame;
    int* samples = device_alloc<int>(n);
    unsigned *coded = device_alloc<unsigned>(n), *sums = device_alloc<unsigned>(size_t(frames) * kBands);
    fill_uniform(samples, n, key, -32768.0f, 32768.0f);
    poison(coded, n * 4);
    poison(sums, size_t(frames) * kBands * 4);
    auto launch = [&] {
        auto kernel = fix ? lifting_skewed : lifting_plain;
        kernel<<<blocks_for(frames, kWarps), kWarps * 32>>>(samples, coded, sums, frames);
    };
    launch_once(launch);
    size_t wrong = 0;
    for (size_t f = 0; f < size_t(frames); f += std::max(1, frames / 1500) | 1)
        wrong += wrong_in(row(samples, f, kFrame), row(coded, f, kFrame), row(sums, f, kBands));
    wrong += wrong_in(row(samples, frames - 1, kFrame), row(coded, frames - 1, kFrame), row(sums, frames - 1, kBands));
    return report("faults/s-lifting", median_us(launch, reps), 0, 8.0 * n, double(wrong), 0);
}
