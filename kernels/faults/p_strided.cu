// Scores of windowed attention get their slope and mask: out = score * scale[head] + slope[head] (key - query) + mask[window][key],
// tensors [batch][window][head][64][64] given as views whose strides are only known at run time (0 where a view is broadcast).
#include "p_harness.cuh"

constexpr int kSide = 64;

struct View {
    float* data;
    long long stride[5];
    __device__ __forceinline__ float& at(const long long (&i)[5]) const {
        long long offset = 0;
#pragma unroll
        for (int d = 0; d < 5; ++d) offset += i[d] * stride[d];
        return data[offset];
    }
};

struct Views {
    View score, scale, slope, mask, out;
};

// Each element works out five offsets of five products.
__global__ void __launch_bounds__(256) bias_scores(Views v, int windows_log2) {
    long long i[5] = {blockIdx.z >> windows_log2, blockIdx.z & ((1u << windows_log2) - 1), blockIdx.y,
                      (long long)blockIdx.x * blockDim.y + threadIdx.y, threadIdx.x};
    float distance = float(int(i[4]) - int(i[3]));
    v.out.at(i) = fmaf(v.score.at(i), v.scale.at(i), fmaf(v.slope.at(i), distance, v.mask.at(i)));
}

// Offsets once a thread; it goes down sixteen queries by adding a stride.
__global__ void __launch_bounds__(256) bias_scores_rows(Views v, int windows_log2) {
    long long i[5] = {blockIdx.z >> windows_log2, blockIdx.z & ((1u << windows_log2) - 1), blockIdx.y, threadIdx.y, threadIdx.x};
    const float *score = &v.score.at(i), *scale = &v.scale.at(i), *slope = &v.slope.at(i), *mask = &v.mask.at(i);
    float *out = &v.out.at(i), distance = float(int(threadIdx.x) - int(threadIdx.y));
    int down = int(v.score.stride[3]) * 4, out_down = int(v.out.stride[3]) * 4, mask_down = int(v.mask.stride[3]) * 4;
    float s = *scale, m = *slope;
#pragma unroll 4
    for (int q = 0; q < kSide / 4; ++q) {
        *out = fmaf(*score, s, fmaf(m, distance, *mask));
        score += down;
        out += out_down;
        mask += mask_down;
        distance -= 4.0f;
    }
}

struct Reference {
    const float *score, *scale, *slope, *mask;
    int windows, heads;
    __device__ double operator()(size_t i) const {
        int k = int(i % kSide), q = int(i / kSide % kSide), h = int(i / (kSide * kSide) % heads), w = int(i / (kSide * kSide) / heads % windows);
        return double(score[i]) * scale[h] + double(slope[h]) * (k - q) + mask[w * kSide + k];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int batch = positive(args, "batch", 16, 128), log2 = positive(args, "windows_log2", 6, 8), heads = positive(args, "heads", 16, 64);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int windows = 1 << log2;
    require(batch * windows <= 65535, "--batch times the windows must be at most 65535");
    size_t n = size_t(batch) * windows * heads * kSide * kSide;
    float *score = device_alloc<float>(n), *out = device_alloc<float>(n), *scale = device_alloc<float>(heads);
    float *slope = device_alloc<float>(heads), *mask = device_alloc<float>(size_t(windows) * kSide);
    fill_uniform(score, n, key, -1.0f, 1.0f);
    fill_uniform(scale, size_t(heads), key + 1, 0.1f, 1.0f);
    fill_uniform(slope, size_t(heads), key + 2, 0.0f, 0.1f);
    fill_uniform(mask, size_t(windows) * kSide, key + 3, -1.0f, 0.0f);
    poison(out, n * 4);
    const long long k = 1, q = kSide, h = q * kSide, w = h * heads, b = w * windows;
    Views views{{score, {b, w, h, q, k}}, {scale, {0, 0, 1, 0, 0}}, {slope, {0, 0, 1, 0, 0}}, {mask, {0, kSide, 0, 0, 1}}, {out, {b, w, h, q, k}}};
    auto launch = [&] {
        dim3 block(kSide, 4);
        if (fix) bias_scores_rows<<<dim3(1, heads, batch * windows), block>>>(views, log2);
        else bias_scores<<<dim3(kSide / 4, heads, batch * windows), block>>>(views, log2);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{score, scale, slope, mask, windows, heads});
    return report("faults/p-strided", median_us(launch, reps), 0, 8.0 * n, error, 1e-6);
}
