// Four planes of n floats become n records of four floats: plane after plane, or record after record.
#include "memory.cuh"

// blockIdx.x runs faster than blockIdx.y, so a whole plane is written before the next: by then the sectors, each with
// 8 of 32 bytes new, have left L2 and memory had to merge them.
__global__ void interleave_planes(const float* __restrict__ planes, float* __restrict__ records, unsigned n) {
    unsigned plane = blockIdx.y, first = blockIdx.x * 1024 + threadIdx.x;
    float value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) value[k] = planes[size_t(plane) * n + first + k * 256];
#pragma unroll
    for (int k = 0; k < 4; ++k) records[size_t(first + k * 256) * 4 + plane] = value[k];
}

__global__ void interleave_records(const float* __restrict__ planes, float4* __restrict__ records, unsigned n) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    records[i] = make_float4(planes[i], planes[i + n], planes[i + 2 * size_t(n)], planes[i + 3 * size_t(n)]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 32 << 20, 1024);
    args.done();
    float *planes = device_alloc<float>(4 * n), *records = device_alloc<float>(4 * n);
    fill_uniform(planes, 4 * n, s, -1, 1);
    poison(records, 16 * n);
    auto launch = [&] {
        if (fault) interleave_planes<<<dim3(unsigned(n / 1024), 4), 256>>>(planes, records, unsigned(n));
        else interleave_records<<<unsigned(n / 256), 256>>>(planes, reinterpret_cast<float4*>(records), unsigned(n));
    };
    run_once(launch);
    auto h = to_host(planes, 4 * n);
    double error = mismatch(records, 4 * n, [&](size_t i) { return h[(i % 4) * n + i / 4]; });
    return report(fault ? "faults/interleave-planes" : "faults/interleave-records", median_us(launch, r), 0, 32.0 * n,
                  error, 0);
}
