// Marks records of 64 bytes as valid: one byte each.
#include "h_harness.cuh"

constexpr int kRecord = 64, kOffset = 8;

__global__ void mark_valid(uint8_t* __restrict__ record, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) record[size_t(i) * kRecord + kOffset] = 1;
}

struct Reference {
    __device__ double operator()(size_t i) const { return i % kRecord == kOffset ? 1 : 0x5a; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 10000000, 1 << 26);
    int reps = repeats(args);
    seed(args);
    args.done();
    size_t bytes = size_t(n) * kRecord;
    uint8_t* record = device_alloc<uint8_t>(bytes);
    CHECK_CUDA(cudaMemset(record, 0x5a, bytes));
    auto launch = [&] { mark_valid<<<blocks_for(n, 448), 448>>>(record, n); };
    launch_once(launch);
    double error = device_error(record, bytes, Reference{});
    double us = median_us(launch, reps);
    return report("faults/h-flags", us, 0, n, error, 0);
}
