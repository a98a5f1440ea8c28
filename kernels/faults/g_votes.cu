// Sums weights by one of four classes (low two bits). `fault` adds in shared memory, `fix` in registers.
#include "g_util.cuh"
using namespace held;

template <bool PRIVATE>
__global__ void __launch_bounds__(256) votes_by_class(const uint4* in, unsigned long long* totals, size_t n) {
    __shared__ unsigned counters[4];
    if (threadIdx.x < 4) counters[threadIdx.x] = 0;
    __syncthreads();
    unsigned sums[4] = {};
    auto add = [&](unsigned v) {
        if (PRIVATE) {
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[c] += (v & 3) == c ? v >> 24 : 0;
        } else {
            atomicAdd(&counters[v & 3], v >> 24);
        }
    };
    size_t stride = size_t(gridDim.x) * 256;
#pragma unroll 4
    for (size_t i = size_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += stride) {
        uint4 v = __ldcs(in + i);
        add(v.x);
        add(v.y);
        add(v.z);
        add(v.w);
    }
    if (PRIVATE) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            unsigned v = __reduce_add_sync(0xffffffffu, sums[c]);
            if (threadIdx.x % 32 == 0) atomicAdd(&counters[c], v);
        }
    }
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(&totals[threadIdx.x], (unsigned long long)counters[threadIdx.x]);
}

__global__ void reference_votes(const unsigned* in, unsigned long long* totals, size_t n) {
    unsigned long long sums[4] = {};
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        for (int c = 0; c < 4; ++c) sums[c] += (in[i] & 3) == c ? in[i] >> 24 : 0;
    for (int c = 0; c < 4; ++c) atomicAdd(&totals[c], sums[c]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    long long n = args.get("n", 67108864);
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= (1ll << 30) && n % 4 == 0, "--n must be a multiple of 4, at most 2^30");
    uint8_t* in = device_alloc<uint8_t>(size_t(n) * 4);
    auto* totals = device_alloc<unsigned long long>(4);
    auto* ref = device_alloc<unsigned long long>(4);
    fill_uniform(in, size_t(n) * 4, s, 0.f, 1.f);
    CHECK_CUDA(cudaMemset(ref, 0, 32));
    reference_votes<<<1056, 256>>>(reinterpret_cast<unsigned*>(in), ref, size_t(n));
    auto kernel = fix ? votes_by_class<true> : votes_by_class<false>;
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(totals, 0, 32));
        kernel<<<1056, 256>>>(reinterpret_cast<uint4*>(in), totals, size_t(n) / 4);
    };
    launch();
    finish();
    double error = device_error(totals, ref, 4);
    return report("faults/g-votes", median_us(launch, reps), 0, 4.0 * double(n), error, 0);
}
