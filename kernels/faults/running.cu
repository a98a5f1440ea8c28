// Running sum of a long array: each block waits for the total of the block before it, or the totals are scanned in between.
#include "pair.cuh"
constexpr int kThreads = 256, kVectors = 2, kEach = 4 * kVectors, kChunk = kThreads * kEach;

// Exclusive sums over the block of N values a thread: a warp's values are in order of their index, then of the lane.
// `total` is the block's sum, in every thread.
template <int N>
__device__ void block_exclusive(const float (&v)[N], float (&before)[N], float& total) {
    __shared__ float sums[kThreads / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float run[N], warps_own = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) run[j] = v[j];
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
#pragma unroll
        for (int j = 0; j < N; ++j) {
            float up = __shfl_up_sync(~0u, run[j], d);
            if (lane >= d) run[j] += up;
        }
#pragma unroll
    for (int j = 0; j < N; ++j) {
        before[j] = warps_own + run[j] - v[j];
        warps_own += __shfl_sync(~0u, run[j], 31);
    }
    if (lane == 0) sums[warp] = warps_own;
    __syncthreads();
    float start = 0;
    total = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
        if (w == warp) start = total;
        total += sums[w];
    }
#pragma unroll
    for (int j = 0; j < N; ++j) before[j] += start;
}
// A warp has 1 KB of its chunk, in vectors of neighbouring lanes: `at` is the lane's first.
__device__ size_t place(unsigned chunk) { return size_t(chunk) * kChunk + threadIdx.x / 32 * 32 * kEach + threadIdx.x % 32 * 4; }
__device__ void load_chunk(const float* in, float4 (&v)[kVectors], size_t at, float (&sum)[kVectors]) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) v[j] = *reinterpret_cast<const float4*>(in + at + j * 128);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) sum[j] = v[j].x + v[j].y + v[j].z + v[j].w;
}
__device__ void store_chunk(float* out, const float4 (&v)[kVectors], size_t at, float start, const float (&before)[kVectors]) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
        float4 r = v[j];
        r.x += start + before[j], r.y += r.x, r.z += r.y, r.w += r.z;
        *reinterpret_cast<float4*>(out + at + j * 128) = r;
    }
}

// Tickets number the blocks in the order in which they start, so the block waited for is always running or done. The wait
// is bounded: a block that gives up passes NaN on, which fails the comparison instead of hanging the GPU.
__global__ void __launch_bounds__(kThreads) sum_relay(const float* in, float* out, unsigned* ticket, volatile int* ready,
                                                      volatile float* carry) {
    __shared__ unsigned mine;
    __shared__ float start;
    if (threadIdx.x == 0) mine = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned chunk = mine;
    size_t at = place(chunk);
    float4 v[kVectors];
    float sum[kVectors], before[kVectors], total;
    load_chunk(in, v, at, sum);
    block_exclusive(sum, before, total);
    if (threadIdx.x == 0) {
        float c = 0;
        if (chunk > 0) {
            int polls = 0;
            while (!ready[chunk - 1] && polls < (1 << 22)) ++polls;
            __threadfence();
            c = polls < (1 << 22) ? carry[chunk - 1] : __int_as_float(0x7fffffff);
        }
        carry[chunk] = c + total;
        __threadfence();
        ready[chunk] = 1;
        start = c;
    }
    __syncthreads();
    store_chunk(out, v, at, start, before);
}

__global__ void __launch_bounds__(kThreads) chunk_totals(const float* in, float* totals) {
    float4 v[kVectors];
    float sum[kVectors], before[kVectors], total;
    load_chunk(in, v, place(blockIdx.x), sum);
    block_exclusive(sum, before, total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}
// One block: thread t sums up its share of the totals, then gives each chunk its start.
__global__ void __launch_bounds__(kThreads) chunk_starts(float* totals, int chunks) {
    int each = (chunks + kThreads - 1) / kThreads, from = threadIdx.x * each, to = min(from + each, chunks);
    float sum[1] = {}, before[1], total;
    for (int c = from; c < to; ++c) sum[0] += totals[c];
    block_exclusive(sum, before, total);
    for (int c = from; c < to; ++c) {
        float t = totals[c];
        totals[c] = before[0];
        before[0] += t;
    }
}
__global__ void __launch_bounds__(kThreads) sum_offset(const float* in, float* out, const float* starts) {
    size_t at = place(blockIdx.x);
    float4 v[kVectors];
    float sum[kVectors], before[kVectors], total, start = starts[blockIdx.x];
    load_chunk(in, v, at, sum);
    block_exclusive(sum, before, total);
    store_chunk(out, v, at, start, before);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int chunks = int(args.get("chunks", 32768)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(chunks > 0 && chunks <= 1000000, "--chunks must be between 1 and 1000000");
    size_t n = size_t(chunks) * kChunk;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n), *carry = device_alloc<float>(chunks);
    int* flags = device_alloc<int>(chunks + 1);  // the ticket, then a flag a chunk
    fill_uniform(in, n, key, 0.f, 1.f);
    auto hi = to_host(in, n);
    std::vector<double> want(n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) want[i] = sum += hi[i];
    auto launch = [&] {
        if (fault) {
            CHECK_CUDA(cudaMemsetAsync(flags, 0, sizeof(int) * (chunks + 1)));
            sum_relay<<<chunks, kThreads>>>(in, out, reinterpret_cast<unsigned*>(flags), flags + 1, carry);
        } else {
            chunk_totals<<<chunks, kThreads>>>(in, carry);
            chunk_starts<<<1, kThreads>>>(carry, chunks);
            sum_offset<<<chunks, kThreads>>>(in, out, carry);
        }
    };
    return run_checked(fault ? "faults/sum-relay" : "faults/sum-offset", reps, launch, out, n, [&](size_t i) { return want[i]; },
                       1.0 * n, 8.0 * n, 1e-4, 65536);
}
