// Running sum of a long array: each block waits for the total of the block before it, or the totals are scanned in between.
#include "pair.cuh"
constexpr int kThreads = 256, kEach = 8, kChunk = kThreads * kEach;

// Exclusive sum of one value a thread over the block; `total` is the block's sum, in every thread.
__device__ float block_exclusive(float v, float& total) {
    __shared__ float sums[kThreads / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float run = v;
    for (int d = 1; d < 32; d *= 2) {
        float up = __shfl_up_sync(~0u, run, d);
        if (lane >= d) run += up;
    }
    if (lane == 31) sums[warp] = run;
    __syncthreads();
    float before = 0;
    total = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
        if (w == warp) before = total;
        total += sums[w];
    }
    return before + run - v;
}
__device__ void load_chunk(const float* in, float (&v)[kEach], size_t at, float& sum) {
    float4 a = *reinterpret_cast<const float4*>(in + at), b = *reinterpret_cast<const float4*>(in + at + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    sum = 0;
    for (float e : v) sum += e;
}
__device__ void store_chunk(float* out, const float (&v)[kEach], size_t at, float before) {
    float r[kEach];
    for (int k = 0; k < kEach; ++k) r[k] = before += v[k];
    *reinterpret_cast<float4*>(out + at) = make_float4(r[0], r[1], r[2], r[3]);
    *reinterpret_cast<float4*>(out + at + 4) = make_float4(r[4], r[5], r[6], r[7]);
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
    size_t at = size_t(chunk) * kChunk + threadIdx.x * kEach;
    float v[kEach], sum, total;
    load_chunk(in, v, at, sum);
    float before = block_exclusive(sum, total);
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
    store_chunk(out, v, at, start + before);
}

__global__ void __launch_bounds__(kThreads) chunk_totals(const float* in, float* totals) {
    float v[kEach], sum, total;
    load_chunk(in, v, size_t(blockIdx.x) * kChunk + threadIdx.x * kEach, sum);
    block_exclusive(sum, total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}
// One block: thread t sums up its share of the totals, then gives each chunk its start.
__global__ void __launch_bounds__(kThreads) chunk_starts(float* totals, int chunks) {
    int each = (chunks + kThreads - 1) / kThreads, from = threadIdx.x * each, to = min(from + each, chunks);
    float sum = 0, total;
    for (int c = from; c < to; ++c) sum += totals[c];
    float before = block_exclusive(sum, total);
    for (int c = from; c < to; ++c) {
        float t = totals[c];
        totals[c] = before;
        before += t;
    }
}
__global__ void __launch_bounds__(kThreads) sum_offset(const float* in, float* out, const float* starts) {
    size_t at = size_t(blockIdx.x) * kChunk + threadIdx.x * kEach;
    float v[kEach], sum, total;
    load_chunk(in, v, at, sum);
    store_chunk(out, v, at, starts[blockIdx.x] + block_exclusive(sum, total));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int chunks = int(args.get("chunks", 8192)), reps = repeats(args);
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
