// Solves n systems of 8 x 8 by elimination, one a thread, coefficients in planes. --variant sets the occupancy asked for.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kOrder = 8;

template <int BLOCKS>
__global__ void __launch_bounds__(256, BLOCKS) eliminate(const float* __restrict__ matrix, const float* __restrict__ right, float* __restrict__ x, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float a[kOrder][kOrder], b[kOrder];
#pragma unroll
    for (int r = 0; r < kOrder; ++r) {
#pragma unroll
        for (int c = 0; c < kOrder; ++c) a[r][c] = matrix[size_t(r * kOrder + c) * n + i];
        b[r] = right[size_t(r) * n + i];
    }
#pragma unroll
    for (int p = 0; p < kOrder; ++p) {
        float inverse = __fdividef(1.0f, a[p][p]);
        b[p] *= inverse;
#pragma unroll
        for (int c = p + 1; c < kOrder; ++c) a[p][c] *= inverse;
#pragma unroll
        for (int r = 0; r < kOrder; ++r) {
            if (r == p) continue;  // Gauss-Jordan: above and below
            b[r] = fmaf(-a[r][p], b[p], b[r]);
#pragma unroll
            for (int c = p + 1; c < kOrder; ++c) a[r][c] = fmaf(-a[r][p], a[p][c], a[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < kOrder; ++r) x[size_t(r) * n + i] = b[r];
}

// Makes the diagonals dominant.
__global__ void strengthen(float* matrix, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int r = 0; r < kOrder; ++r) matrix[size_t(r * kOrder + r) * n + i] += 9.0f;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 1081344, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t elements = size_t(n) * kOrder * kOrder;
    float *matrix = device_alloc<float>(elements), *right = device_alloc<float>(size_t(n) * kOrder), *x = device_alloc<float>(size_t(n) * kOrder);
    fill_uniform(matrix, elements, key, -1.0f, 1.0f);
    fill_uniform(right, size_t(n) * kOrder, key + 1, -1.0f, 1.0f);
    strengthen<<<blocks_for(n, 256), 256>>>(matrix, n);
    CHECK_CUDA(cudaGetLastError());
    poison(x, size_t(n) * kOrder * sizeof(float));
    auto kernel = fix ? eliminate<2> : eliminate<8>;
    auto launch = [&] { kernel<<<blocks_for(n, 256), 256>>>(matrix, right, x, n); };
    launch_once(launch);
    // Residual: b - A x against b, over a sample of systems.
    std::vector<float> a = to_host(matrix, elements), b = to_host(right, size_t(n) * kOrder), got = to_host(x, size_t(n) * kOrder);
    double residual = 0, norm = 0;
    for (size_t i = 0; i < size_t(n); i += 13)
        for (int r = 0; r < kOrder; ++r) {
            double want = b[size_t(r) * n + i], sum = 0;
            for (int c = 0; c < kOrder; ++c) sum += double(a[size_t(r * kOrder + c) * n + i]) * got[size_t(c) * n + i];
            residual += (sum - want) * (sum - want);
            norm += want * want;
        }
    return report("faults/k-solve", median_us(launch, reps), 0, 320.0 * n, std::sqrt(residual / norm), 1e-5);
}
