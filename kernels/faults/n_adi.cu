// Half a step of an ADI diffusion solver: one tridiagonal system a line, a thread a line (Thomas algorithm).
// `fault` keeps each line contiguous, `fix` interleaves the lines, so that neighbouring lanes touch neighbouring words.
#include "h_harness.cuh"

constexpr int kCells = 128, kBatch = 8;

template <bool kInterleaved>
struct Grid {
    size_t lines;
    __host__ __device__ size_t at(size_t line, int i) const { return kInterleaved ? size_t(i) * lines + line : line * kCells + i; }
};

template <class G>
__device__ __forceinline__ void sweep(const G grid, const float* __restrict__ r, const float* __restrict__ d, float* __restrict__ upper,
                                      float* __restrict__ right, float* __restrict__ u) {
    size_t line = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (line >= grid.lines) return;
    float cp = 0, dp = 0;
#pragma unroll 8
    for (int i = 0; i < kCells; ++i) {
        float k = r[grid.at(line, i)], rhs = d[grid.at(line, i)];
        float lower = i > 0 ? -k : 0.0f, above = i < kCells - 1 ? -k : 0.0f;
        float scale = __fdividef(1.0f, 1.0f + 2.0f * k - lower * cp);
        cp = above * scale;
        dp = (rhs - lower * dp) * scale;
        upper[grid.at(line, i)] = cp;
        right[grid.at(line, i)] = dp;
    }
    float x = 0;  // upper of the last cell is 0
    for (int top = kCells - 1; top > 0; top -= kBatch) {
        float c[kBatch], y[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            c[j] = upper[grid.at(line, top - j)];
            y[j] = right[grid.at(line, top - j)];
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) u[grid.at(line, top - j)] = x = y[j] - c[j] * x;
    }
}

__global__ void __launch_bounds__(256) adi_lines(Grid<false> grid, const float* __restrict__ r, const float* __restrict__ d,
                                                 float* __restrict__ upper, float* __restrict__ right, float* __restrict__ u) {
    sweep(grid, r, d, upper, right, u);
}

__global__ void __launch_bounds__(256) adi_interleaved(Grid<true> grid, const float* __restrict__ r, const float* __restrict__ d,
                                                       float* __restrict__ upper, float* __restrict__ right, float* __restrict__ u) {
    sweep(grid, r, d, upper, right, u);
}

template <class G>
__global__ void reference_adi(G grid, const float* r, const float* d, double* u) {
    size_t line = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (line >= grid.lines) return;
    double upper[kCells], right[kCells], cp = 0, dp = 0;
    for (int i = 0; i < kCells; ++i) {
        double k = r[grid.at(line, i)], lower = i > 0 ? -k : 0.0, scale = 1.0 / (1.0 + 2.0 * k - lower * cp);
        cp = (i < kCells - 1 ? -k : 0.0) * scale;
        dp = (double(d[grid.at(line, i)]) - lower * dp) * scale;
        upper[i] = cp;
        right[i] = dp;
    }
    double x = dp;
    u[grid.at(line, kCells - 1)] = x;
    for (int i = kCells - 2; i >= 0; --i) u[grid.at(line, i)] = x = right[i] - upper[i] * x;
}

struct Reference {
    const double* u;
    __device__ double operator()(size_t i) const { return u[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    size_t lines = positive(args, "lines", 262144, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = lines * kCells;
    float *r = device_alloc<float>(n), *d = device_alloc<float>(n), *upper = device_alloc<float>(n);
    float *right = device_alloc<float>(n), *u = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(r, n, key, 0.1f, 1.0f);
    fill_uniform(d, n, key + 1, 0.0f, 1.0f);
    poison(u, n * sizeof(float));
    unsigned blocks = blocks_for(lines, 256);
    auto launch = [&] {
        if (fix) adi_interleaved<<<blocks, 256>>>({lines}, r, d, upper, right, u);
        else adi_lines<<<blocks, 256>>>({lines}, r, d, upper, right, u);
    };
    launch_once(launch);
    if (fix) reference_adi<<<blocks, 256>>>(Grid<true>{lines}, r, d, ref);
    else reference_adi<<<blocks, 256>>>(Grid<false>{lines}, r, d, ref);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(u, n, Reference{ref});
    return report("faults/n-adi", median_us(launch, reps), 0, 28.0 * double(n), error, 1e-4);
}
