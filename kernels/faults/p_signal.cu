// Pushes a partial sum plus residual (bf16) into the buffer that the next rank of a pipeline reads, and raises a flag for each finished piece.
// --variant fault: a fence and a flag for every 512 bytes that a warp has written; fix: one for the block's 64 KiB.
#include "p_harness.cuh"

constexpr int kThreads = 256, kTurns = 16;

__device__ __forceinline__ uint32_t add2(uint32_t a, uint32_t b) {
    __nv_bfloat162 sum = __hadd2(*reinterpret_cast<__nv_bfloat162*>(&a), *reinterpret_cast<__nv_bfloat162*>(&b));
    return *reinterpret_cast<uint32_t*>(&sum);
}

__device__ __forceinline__ uint4 add8(uint4 a, uint4 b) { return make_uint4(add2(a.x, b.x), add2(a.y, b.y), add2(a.z, b.z), add2(a.w, b.w)); }

__device__ __forceinline__ void raise(unsigned* flag, unsigned epoch) { atomicExch_system(flag, epoch); }

__global__ void __launch_bounds__(kThreads) push_pieces(const uint4* __restrict__ part, const uint4* __restrict__ residual, uint4* __restrict__ buffer,
                                                        unsigned* __restrict__ flags, unsigned epoch) {
    size_t base = size_t(blockIdx.x) * kThreads * kTurns;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
        size_t i = base + turn * kThreads + threadIdx.x;
        buffer[i] = add8(part[i], residual[i]);
        __threadfence_system();  // what this warp wrote, before its flag
        __syncwarp();
        if (threadIdx.x % 32 == 0) raise(&flags[i / 32], epoch);
    }
}

__global__ void __launch_bounds__(kThreads) push_block(const uint4* __restrict__ part, const uint4* __restrict__ residual, uint4* __restrict__ buffer,
                                                       unsigned* __restrict__ flags, unsigned epoch) {
    size_t base = size_t(blockIdx.x) * kThreads * kTurns;
#pragma unroll 4
    for (int turn = 0; turn < kTurns; ++turn) {
        size_t i = base + turn * kThreads + threadIdx.x;
        buffer[i] = add8(part[i], residual[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        raise(&flags[blockIdx.x], epoch);
    }
}

struct Reference {
    const __nv_bfloat16 *part, *residual;
    __device__ double operator()(size_t i) const { return double(__bfloat162float(part[i])) + double(__bfloat162float(residual[i])); }
};

struct Raised {
    __device__ double operator()(size_t) const { return 7; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int blocks = positive(args, "blocks", 4224, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(blocks) * kThreads * kTurns * 8, flags_used = fix ? size_t(blocks) : n / 256;
    auto *part = device_alloc<__nv_bfloat16>(n), *residual = device_alloc<__nv_bfloat16>(n), *buffer = device_alloc<__nv_bfloat16>(n);
    unsigned* flags = device_alloc<unsigned>(flags_used);
    fill_uniform(part, n, key, -1.0f, 1.0f);
    fill_uniform(residual, n, key + 1, -1.0f, 1.0f);
    poison(buffer, n * 2);
    CHECK_CUDA(cudaMemset(flags, 0, flags_used * 4));
    auto launch = [&] {
        auto kernel = fix ? push_block : push_pieces;
        kernel<<<blocks, kThreads>>>(reinterpret_cast<uint4*>(part), reinterpret_cast<uint4*>(residual), reinterpret_cast<uint4*>(buffer), flags, 7u);
    };
    launch_once(launch);
    double error = device_error(buffer, n, Reference{part, residual});
    require(device_error(flags, flags_used, Raised{}) == 0, "a flag was not raised");
    return report("faults/p-signal", median_us(launch, reps), 0, 6.0 * n, error, 4e-3);
}
