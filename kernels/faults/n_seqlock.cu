// Smooths a feed and publishes it to readers on the device under a sequence counter a warp: odd while it writes, even when a reader may
// look. `fault` publishes every row of 32 values, `fix` every 64 rows.
#include "h_harness.cuh"

constexpr int kBlock = 256;

template <int kRows>
__device__ __forceinline__ void feed(const float* __restrict__ in, float* out, volatile unsigned* sequence, int rows_per_warp, float keep) {
    int warp = (blockIdx.x * kBlock + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const float* from = in + size_t(warp) * rows_per_warp * 32 + lane;
    float* to = out + size_t(warp) * rows_per_warp * 32 + lane;
    float state = 0;
    unsigned count = 0;
    for (int base = 0; base < rows_per_warp; base += kRows) {
        if (lane == 0) sequence[warp] = ++count;
        __threadfence();
#pragma unroll 16
        for (int r = 0; r < kRows; ++r) {
            state = fmaf(keep, state - from[(base + r) * 32], from[(base + r) * 32]);
            to[(base + r) * 32] = state;
        }
        __threadfence();
        if (lane == 0) sequence[warp] = ++count;
    }
}

__global__ void __launch_bounds__(kBlock) feed_each(const float* __restrict__ in, float* out, volatile unsigned* sequence, int rows_per_warp,
                                                    float keep) {
    feed<1>(in, out, sequence, rows_per_warp, keep);
}

__global__ void __launch_bounds__(kBlock) feed_batch(const float* __restrict__ in, float* __restrict__ out, volatile unsigned* sequence,
                                                     int rows_per_warp, float keep) {
    feed<64>(in, out, sequence, rows_per_warp, keep);
}

__global__ void reference_feed(const float* in, double* out, int rows_per_warp, double keep) {
    int warp = blockIdx.x * blockDim.x / 32 + threadIdx.x / 32, lane = threadIdx.x % 32;
    double state = 0;
    for (int r = 0; r < rows_per_warp; ++r) {
        size_t i = (size_t(warp) * rows_per_warp + r) * 32 + lane;
        out[i] = state = keep * (state - double(in[i])) + double(in[i]);
    }
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int blocks = positive(args, "blocks", 1056, 1 << 16), rows = positive(args, "rows", 256, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % 64 == 0, "--rows must be a multiple of 64");
    size_t n = size_t(blocks) * kBlock * rows;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    unsigned* sequence = device_alloc<unsigned>(size_t(blocks) * kBlock / 32);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * sizeof(float));
    const float keep = 0.9375f;
    auto launch = [&] {
        if (fix) feed_batch<<<blocks, kBlock>>>(in, out, sequence, rows, keep);
        else feed_each<<<blocks, kBlock>>>(in, out, sequence, rows, keep);
    };
    launch_once(launch);
    reference_feed<<<blocks, kBlock>>>(in, ref, rows, keep);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, n, Reference{ref});
    for (unsigned s : to_host(sequence, size_t(blocks) * kBlock / 32))
        if (s != unsigned(fix ? rows / 32 : rows * 2)) error = INFINITY;
    return report("faults/n-seqlock", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-4);
}
