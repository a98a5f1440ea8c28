// Sums of a few long rows: one block a row, or each row spread over many blocks.
#include "memory.cuh"

constexpr int THREADS = 512;

__device__ void sum_slice(const float4* __restrict__ slice, float* __restrict__ out, size_t count) {
    __shared__ float parts[THREADS / 32];
    float total[4] = {};
    size_t i = threadIdx.x;
    for (; i + 7 * THREADS < count; i += 8 * THREADS) {
        float4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = slice[i + k * THREADS];
#pragma unroll
        for (int k = 0; k < 8; ++k) total[k % 4] += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    for (; i < count; i += THREADS) total[0] += (slice[i].x + slice[i].y) + (slice[i].z + slice[i].w);
    float sum = (total[0] + total[1]) + (total[2] + total[3]);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; ++w) sum += parts[w];
        atomicAdd(out, sum);
    }
}

__global__ void __launch_bounds__(THREADS) sum_whole_rows(const float4* in, float* out, size_t length4) {
    sum_slice(in + blockIdx.x * length4, out + blockIdx.x, length4);
}

__global__ void __launch_bounds__(THREADS) sum_row_slices(const float4* in, float* out, size_t length4, size_t slice4) {
    size_t first = blockIdx.x * slice4, count = min(slice4, length4 - first);
    sum_slice(in + blockIdx.y * length4 + first, out + blockIdx.y, count);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t rows = size_arg(args, "rows", 8), length = size_arg(args, "length", 16 << 20, 4);
    require(rows <= 65535, "--rows is at most 65535");
    args.done();
    auto in = device_alloc<float>(rows * length), out = device_alloc<float>(rows);
    fill_uniform(in, rows * length, s, 0, 1);
    CHECK_CUDA(cudaMemset(out, 0, rows * 4));
    auto vectors = reinterpret_cast<const float4*>(in);
    const size_t slice4 = 16384;
    auto launch = [&] {
        if (fault) sum_whole_rows<<<unsigned(rows), THREADS>>>(vectors, out, length / 4);
        else {
            dim3 grid(unsigned((length / 4 + slice4 - 1) / slice4), unsigned(rows));
            sum_row_slices<<<grid, THREADS>>>(vectors, out, length / 4, slice4);
        }
    };
    run_once(launch);
    double error = error_against(out, rows, [&](size_t i) { return host_sum(in + i * length, length); });
    return report(fault ? "faults/sum-whole-rows" : "faults/sum-row-slices", median_us(launch, r), 0,
                  4.0 * rows * length, error, 1e-5);
}
