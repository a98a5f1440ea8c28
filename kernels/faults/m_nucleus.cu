// Nucleus filter of sampling: in each row of 1024 (ordered) candidates keeps those before which the running sum of
// probabilities is under the row's limit, and clears the rest. `fault`: one thread of the block adds up; `fix`: a scan.
#include "h_harness.cuh"

constexpr int kRow = 1024, kThreads = 256;

__global__ void __launch_bounds__(kThreads) nucleus_filter(const float4* __restrict__ p, const float* __restrict__ limit,
                                                           float4* __restrict__ out) {
    __shared__ float4 row[kRow / 4];
    __shared__ int keep;
    size_t at = size_t(blockIdx.x) * (kRow / 4) + threadIdx.x;
    float4 v = p[at];
    row[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        const float* values = reinterpret_cast<const float*>(row);
        float sum = 0, most = limit[blockIdx.x];
        int i = 0;
        while (i < kRow && sum < most) sum += values[i++];
        keep = i;
    }
    __syncthreads();
    int first = threadIdx.x * 4, kept = keep;
    out[at] = make_float4(first < kept ? v.x : 0, first + 1 < kept ? v.y : 0, first + 2 < kept ? v.z : 0, first + 3 < kept ? v.w : 0);
}

__global__ void __launch_bounds__(kThreads) nucleus_scan(const float4* __restrict__ p, const float* __restrict__ limit,
                                                         float4* __restrict__ out) {
    __shared__ float warps[kThreads / 32];
    size_t at = size_t(blockIdx.x) * (kRow / 4) + threadIdx.x;
    float4 v = p[at];
    float most = limit[blockIdx.x], own = v.x + v.y + v.z + v.w, sum = own;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 1; s < 32; s <<= 1) {
        float other = __shfl_up_sync(0xffffffffu, sum, s);
        if (lane >= s) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    float before = sum - own;
    for (int w = 0; w < kThreads / 32; ++w)
        if (w < warp) before += warps[w];
    out[at] = make_float4(before < most ? v.x : 0, before + v.x < most ? v.y : 0, before + v.x + v.y < most ? v.z : 0,
                          before + v.x + v.y + v.z < most ? v.w : 0);
}

// One thread a row; the number of candidates kept.
__global__ void reference_keep(const float* p, const float* limit, int* keep, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double sum = 0;
    int i = 0;
    while (i < kRow && sum < double(limit[r])) sum += p[size_t(r) * kRow + i++];
    keep[r] = i;
}

struct Reference {
    const float* p;
    const int* keep;
    __device__ double operator()(size_t i) const { return int(i % kRow) < keep[i / kRow] ? double(p[i]) : 0.0; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 67584, 1 << 21);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(rows) * kRow;
    float *p = device_alloc<float>(n), *limit = device_alloc<float>(rows), *out = device_alloc<float>(n);
    int* keep = device_alloc<int>(rows);
    fill_uniform(p, n, key, 0.0f, 2.0f / kRow);
    fill_uniform(limit, rows, key + 1, 0.7f, 0.95f);
    poison(out, n * sizeof(float));
    auto launch = [&] {
        auto kernel = fix ? nucleus_scan : nucleus_filter;
        kernel<<<rows, kThreads>>>(reinterpret_cast<float4*>(p), limit, reinterpret_cast<float4*>(out));
    };
    launch_once(launch);
    launch_once([&] { reference_keep<<<blocks_for(rows, 64), 64>>>(p, limit, keep, rows); });
    // A sum that rounds across the limit moves one candidate of its row.
    double error = device_error(out, n, Reference{p, keep});
    return report("faults/m-nucleus", median_us(launch, reps), 0, 8.0 * double(n), error, 3e-3);
}
