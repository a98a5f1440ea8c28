// Positions of the tokens that a pruned cache keeps: an exclusive sum over flags (a byte each) in one pass. A block takes a ticket, sums its
// 16384 flags and needs the sum of all before. --variant fault: it waits until the block before has published its own; fix: a warp looks
// back over published sums of blocks, 32 at a time.
#include "p_harness.cuh"

constexpr int kThreads = 512, kRounds = 8, kFlags = kThreads * kRounds * 4;

struct Chain {
    unsigned* ticket;
    unsigned long long* state;  // a block: 0 nothing yet, 1 << 62 | its own sum, 2 << 62 | the sum up to its end
    __device__ __forceinline__ void publish(int block, unsigned long long kind, unsigned sum) const {
        __threadfence();
        atomicExch(&state[block], kind << 62 | sum);
    }
    __device__ __forceinline__ unsigned long long read(int block) const {
        return *reinterpret_cast<volatile unsigned long long*>(&state[block]);
    }
};

__device__ __forceinline__ unsigned wait_for_previous(const Chain& chain, int block) {
    if (block == 0) return 0;
    unsigned long long v;
    do v = chain.read(block - 1);
    while (v >> 62 != 2);
    return unsigned(v);
}

// By a whole warp.
__device__ __forceinline__ unsigned look_back(const Chain& chain, int block) {
    unsigned before = 0;
    int lane = threadIdx.x % 32;
    for (int end = block; end > 0; end -= 32) {
        int at = end - 1 - lane;
        unsigned long long v = at < 0 ? 2ull << 62 : 0ull;
        while (__any_sync(0xffffffffu, v >> 62 == 0))
            if (v >> 62 == 0) v = chain.read(at);
        unsigned complete = __ballot_sync(0xffffffffu, v >> 62 == 2);
        int last = complete ? __ffs(complete) - 1 : 31;
        before += __reduce_add_sync(0xffffffffu, lane <= last ? unsigned(v) : 0u);
        if (complete) break;
    }
    return before;
}

// Two counts of at most 65535 in a word.
__device__ __forceinline__ unsigned half_of(unsigned word, int round) { return round % 2 ? word >> 16 : word & 0xffffu; }

__device__ __forceinline__ unsigned sum_upto(unsigned v, int lane) {
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, v, s);
        if (lane >= s) v += other;
    }
    return v;
}

template <bool LOOK_BACK>
__global__ void __launch_bounds__(kThreads) keep_positions(const uint32_t* __restrict__ keep, int4* __restrict__ position, Chain chain) {
    __shared__ unsigned warps[kRounds / 2][kThreads / 32], rounds[kRounds];
    __shared__ int number;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) number = int(atomicAdd(chain.ticket, 1u));
    __syncthreads();
    const int block = number;
    const size_t at = size_t(block) * (kFlags / 4) + threadIdx.x;
    uint32_t words[kRounds];
    unsigned upto[kRounds / 2];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) words[i] = keep[at + i * kThreads];
#pragma unroll
    for (int p = 0; p < kRounds / 2; ++p) {
        unsigned both = __dp4a(words[2 * p], 0x01010101u, 0u) | __dp4a(words[2 * p + 1], 0x01010101u, 0u) << 16;
        upto[p] = sum_upto(both, lane);
        if (lane == 31) warps[p][warp] = upto[p];
        upto[p] -= both;
    }
    __syncthreads();
    if (warp == 0) {
        unsigned total = 0, before = 0;
#pragma unroll
        for (int p = 0; p < kRounds / 2; ++p) {
            unsigned v = lane < kThreads / 32 ? warps[p][lane] : 0, sum = sum_upto(v, lane), all = __shfl_sync(0xffffffffu, sum, 31);
            if (lane < kThreads / 32) warps[p][lane] = sum - v;
            if (lane == 0) {
                rounds[2 * p] = total;
                rounds[2 * p + 1] = total + (all & 0xffffu);
            }
            total += (all & 0xffffu) + (all >> 16);
        }
        if (LOOK_BACK) {
            if (lane == 0) chain.publish(block, block ? 1 : 2, total);
            before = look_back(chain, block);
            if (lane == 0 && block) chain.publish(block, 2, before + total);
        } else if (lane == 0) {
            before = wait_for_previous(chain, block);
            chain.publish(block, 2, before + total);
        }
        if (lane == 0)
            for (int i = 0; i < kRounds; ++i) rounds[i] += before;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        unsigned next = rounds[i] + half_of(warps[i / 2][warp], i) + half_of(upto[i / 2], i);
        int4 out;
        out.x = int(next);
        out.y = int(next += words[i] & 0xff);
        out.z = int(next += words[i] >> 8 & 0xff);
        out.w = int(next += words[i] >> 16 & 0xff);
        position[at + i * kThreads] = out;
    }
}

__global__ void flags_from_bytes(uint8_t* data, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) data[i] = data[i] < 80;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int blocks = positive(args, "blocks", 4096, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(blocks) * kFlags;
    auto* keep = device_alloc<uint8_t>(n);
    int* position = device_alloc<int>(n);
    Chain chain{device_alloc<unsigned>(1), device_alloc<unsigned long long>(blocks)};
    fill_uniform(keep, n, key, 0.0f, 1.0f);
    flags_from_bytes<<<2048, 256>>>(keep, n);
    poison(position, n * 4);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(chain.ticket, 0, 4));
        CHECK_CUDA(cudaMemsetAsync(chain.state, 0, size_t(blocks) * 8));
        auto kernel = fix ? keep_positions<true> : keep_positions<false>;
        kernel<<<blocks, kThreads>>>(reinterpret_cast<uint32_t*>(keep), reinterpret_cast<int4*>(position), chain);
    };
    launch_once(launch);
    std::vector<uint8_t> flags = to_host(keep, n);
    std::vector<int> out = to_host(position, n);
    size_t wrong = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < n; ++i) {
        wrong += unsigned(out[i]) != sum;
        sum += flags[i];
    }
    return report("faults/p-compact", median_us(launch, reps), 0, 5.0 * n, double(wrong), 0);
}
