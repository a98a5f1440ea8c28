// First-order recursive filter along the rows of an image, 128 rows a block, through tiles of 32 columns.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kRows = 128, kTile = 32;
constexpr float kKeep = 0.875f, kTake = 0.125f;

template <int PITCH>
__global__ void __launch_bounds__(kRows) smooth_rows(const float* __restrict__ in, float* __restrict__ out, int cols) {
    __shared__ float tile[kRows * PITCH];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    size_t first = size_t(blockIdx.x) * kRows * cols;
    float y = 0;
    for (int c = 0; c < cols; c += kTile) {
#pragma unroll
        for (int r = 0; r < 32; ++r) tile[(r * 4 + warp) * PITCH + lane] = in[first + size_t(r * 4 + warp) * cols + c + lane];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTile; ++k) {
            y = fmaf(kKeep, y, kTake * tile[t * PITCH + k]);
            tile[t * PITCH + k] = y;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 32; ++r) out[first + size_t(r * 4 + warp) * cols + c + lane] = tile[(r * 4 + warp) * PITCH + lane];
        __syncthreads();
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 439296, 1 << 22), cols = positive(args, "cols", 128, 1 << 14);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % kRows == 0 && cols % kTile == 0, "--rows must be a multiple of 128 and --cols of 32");
    size_t n = size_t(rows) * cols;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    auto kernel = fix ? smooth_rows<kTile + 1> : smooth_rows<kTile>;
    auto launch = [&] { kernel<<<rows / kRows, kRows>>>(in, out, cols); };
    launch_once(launch);
    std::vector<float> from = to_host(in, n);
    auto wanted = [&](size_t i) {
        size_t row = i / cols;
        double y = 0;
        for (size_t k = row * cols; k <= i; ++k) y = double(kKeep) * y + double(kTake) * from[k];
        return y;
    };
    double error = sampled_error(to_host(out, n), wanted, 20000);
    return report("faults/k-echo", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
