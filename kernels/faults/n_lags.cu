// Sums of x[i] x[i + lag] for eight lags over frames of 16384 samples, one persistent block a multiprocessor. `fault` brings a frame
// through registers into the only buffer, between two barriers; `fix` has the next frame come by cp.async while it works on this one.
#include "h_harness.cuh"

constexpr int kBlock = 512, kFrame = 16384, kLags = 8, kPad = 16, kBuffer = kFrame + kPad, kLoads = kFrame / 4 / kBlock;

// Four products a lag from twelve samples.
__device__ __forceinline__ void add_frame(const float* frame, float (&sum)[kLags]) {
#pragma unroll 2
    for (int i = threadIdx.x * 4; i < kFrame; i += kBlock * 4) {
        float x[12];
#pragma unroll
        for (int q = 0; q < 3; ++q) {
            float4 v = *reinterpret_cast<const float4*>(frame + i + 4 * q);
            x[4 * q] = v.x;
            x[4 * q + 1] = v.y;
            x[4 * q + 2] = v.z;
            x[4 * q + 3] = v.w;
        }
#pragma unroll
        for (int lag = 0; lag < kLags; ++lag)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[lag] = fmaf(x[j], x[j + lag], sum[lag]);
    }
}

__device__ __forceinline__ void clear_pad(float* buffer) {
    if (threadIdx.x < kPad) buffer[kFrame + threadIdx.x] = 0;
}

__device__ __forceinline__ void finish(const float (&sum)[kLags], float* out) {
    __shared__ float warps[kBlock / 32][kLags];
#pragma unroll
    for (int lag = 0; lag < kLags; ++lag) {
        float s = sum[lag];
        for (int m = 16; m; m >>= 1) s += __shfl_xor_sync(0xffffffffu, s, m);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][lag] = s;
    }
    __syncthreads();
    if (threadIdx.x < kLags) {
        float s = 0;
        for (int w = 0; w < kBlock / 32; ++w) s += warps[w][threadIdx.x];
        out[blockIdx.x * kLags + threadIdx.x] = s;
    }
}

__global__ void __launch_bounds__(kBlock) lags_registers(const float4* __restrict__ in, float* __restrict__ out, int frames) {
    extern __shared__ __align__(16) float buffer[];
    float sum[kLags] = {};
    clear_pad(buffer);
    for (int f = blockIdx.x; f < frames; f += gridDim.x) {
        float4 v[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) v[i] = in[size_t(f) * (kFrame / 4) + i * kBlock + threadIdx.x];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) reinterpret_cast<float4*>(buffer)[i * kBlock + threadIdx.x] = v[i];
        __syncthreads();
        add_frame(buffer, sum);
        __syncthreads();
    }
    finish(sum, out);
}

__device__ __forceinline__ void copy_async(float* buffer, const float4* from) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        int q = i * kBlock + threadIdx.x;
        unsigned to = unsigned(__cvta_generic_to_shared(buffer + 4 * q));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + q) : "memory");
    }
}

__global__ void __launch_bounds__(kBlock) lags_async(const float4* __restrict__ in, float* __restrict__ out, int frames) {
    extern __shared__ __align__(16) float buffer[];
    float sum[kLags] = {};
    clear_pad(buffer);
    clear_pad(buffer + kBuffer);
    if (int(blockIdx.x) < frames) copy_async(buffer, in + size_t(blockIdx.x) * (kFrame / 4));
    asm volatile("cp.async.commit_group;" ::: "memory");
    int turn = 0;
    for (int f = blockIdx.x; f < frames; f += gridDim.x, turn ^= 1) {
        int next = f + gridDim.x;
        if (next < frames) copy_async(buffer + (turn ^ 1) * kBuffer, in + size_t(next) * (kFrame / 4));
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        add_frame(buffer + turn * kBuffer, sum);
        __syncthreads();
    }
    finish(sum, out);
}

// A block a result: the frames of one persistent block, one lag.
__global__ void reference_lags(const float* in, double* out, int frames, int blocks) {
    __shared__ double total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int lag = blockIdx.x % kLags;
    double sum = 0;
    for (int f = blockIdx.x / kLags; f < frames; f += blocks)
        for (int i = threadIdx.x; i + lag < kFrame; i += blockDim.x)
            sum += double(in[size_t(f) * kFrame + i]) * double(in[size_t(f) * kFrame + i + lag]);
    atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int frames = positive(args, "frames", 15840, 1 << 17), blocks = positive(args, "blocks", 132, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(frames) * kFrame;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(size_t(blocks) * kLags);
    double* ref = device_alloc<double>(size_t(blocks) * kLags);
    fill_uniform(in, n, key, -0.5f, 1.0f);
    poison(out, size_t(blocks) * kLags * sizeof(float));
    int one = kBuffer * int(sizeof(float)), two = 2 * one;
    CHECK_CUDA(cudaFuncSetAttribute(lags_registers, cudaFuncAttributeMaxDynamicSharedMemorySize, one));
    CHECK_CUDA(cudaFuncSetAttribute(lags_async, cudaFuncAttributeMaxDynamicSharedMemorySize, two));
    auto launch = [&] {
        auto* from = reinterpret_cast<const float4*>(in);
        if (fix) lags_async<<<blocks, kBlock, two>>>(from, out, frames);
        else lags_registers<<<blocks, kBlock, one>>>(from, out, frames);
    };
    launch_once(launch);
    reference_lags<<<blocks * kLags, 256>>>(in, ref, frames, blocks);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, size_t(blocks) * kLags, Reference{ref});
    return report("faults/n-lags", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-4);
}
