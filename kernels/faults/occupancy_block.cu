// Sums of rows of 128 floats in a given order, a warp a row: blocks of one warp (the SM holds 32 of them), or of eight.
#include "memory.cuh"

// The row's number must arrive before its data can be asked for, so only more warps put more requests in flight.
__device__ void sum_ordered(const float4* __restrict__ data, const unsigned* __restrict__ order,
                            float* __restrict__ out, unsigned rows) {
    unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    unsigned warps = gridDim.x * blockDim.x / 32;
#pragma unroll 1
    for (unsigned i = warp; i < rows; i += warps) {
        float4 v = data[size_t(order[i]) * 32 + lane];
        float sum = (v.x + v.y) + (v.z + v.w);
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (lane == 0) out[i] = sum;
    }
}

__global__ void __launch_bounds__(32) sum_ordered_32(const float4* data, const unsigned* order, float* out, unsigned rows) {
    sum_ordered(data, order, out, rows);
}

__global__ void __launch_bounds__(256) sum_ordered_256(const float4* data, const unsigned* order, float* out, unsigned rows) {
    sum_ordered(data, order, out, rows);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t rows = size_arg(args, "rows", 1 << 20);
    args.done();
    auto data = device_alloc<float>(rows * 128), out = device_alloc<float>(rows);
    auto order = device_alloc<unsigned>(rows);
    fill_uniform(data, rows * 128, s, 0, 1);
    std::vector<unsigned> shuffled(rows);
    for (size_t i = 0; i < rows; ++i) shuffled[i] = unsigned(i);
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(s));
    CHECK_CUDA(cudaMemcpy(order, shuffled.data(), rows * 4, cudaMemcpyHostToDevice));
    poison(out, 4 * rows);
    unsigned threads = fault ? 32 : 256, blocks = 0;
    auto kernel = fault ? sum_ordered_32 : sum_ordered_256;
    int per_sm = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, int(threads), 0));
    blocks = sm_count() * per_sm;
    auto launch = [&] { kernel<<<blocks, threads>>>(reinterpret_cast<float4*>(data), order, out, unsigned(rows)); };
    run_once(launch);
    auto h = to_host(data, rows * 128);
    double error = error_against(out, rows, [&](size_t i) {
        double total = 0;
        for (int c = 0; c < 128; ++c) total += h[size_t(shuffled[i]) * 128 + c];
        return total;
    });
    return report(fault ? "faults/ordered-rows-32" : "faults/ordered-rows-256", median_us(launch, r), 0, 520.0 * rows,
                  error, 1e-5);
}
