// A recurrent layer in one persistent launch: h[t] = tanh(pre[t] + W h[t - 1]), 2048 wide. Each of 128 blocks keeps 16 rows of W in
// shared memory; after each step all blocks meet at a counter in global memory.
#include "h_harness.cuh"

constexpr int kWidth = 2048, kRows = 16, kBlocks = kWidth / kRows, kThreads = 256;
constexpr int kShared = kRows * kWidth * 2 + kWidth * 4;

__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__global__ void __launch_bounds__(kThreads) recurrent_layer(const uint4* __restrict__ w, const float* __restrict__ pre, float* h,
                                                            unsigned* arrived, int steps) {
    extern __shared__ __align__(16) unsigned char memory[];
    uint4* weights = reinterpret_cast<uint4*>(memory);
    float4* state = reinterpret_cast<float4*>(memory + kRows * kWidth * 2);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < kRows * kWidth / 8; i += kThreads) weights[i] = w[size_t(blockIdx.x) * (kRows * kWidth / 8) + i];
    for (int t = 0; t < steps; ++t) {
        for (int i = threadIdx.x; i < kWidth / 4; i += kThreads)
            state[i] = t ? __ldcg(reinterpret_cast<const float4*>(h + size_t(t - 1) * kWidth) + i) : make_float4(0, 0, 0, 0);
        __syncthreads();
        float sum[2] = {};
#pragma unroll 4
        for (int i = lane; i < kWidth / 8; i += 32) {
            float4 a = state[2 * i], b = state[2 * i + 1];
            const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                uint4 v = weights[(warp * 2 + r) * (kWidth / 8) + i];
                const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    sum[r] += __uint_as_float(words[e] << 16) * x[2 * e];
                    sum[r] += __uint_as_float(words[e] & 0xffff0000u) * x[2 * e + 1];
                }
            }
        }
        for (int r = 0; r < 2; ++r) {
            for (int s = 16; s; s >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], s);
            size_t at = size_t(t) * kWidth + blockIdx.x * kRows + warp * 2 + r;
            if (lane == 0) h[at] = tanhf(pre[at] + sum[r]);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1u);
            unsigned tries = 0;
            while (load_acquire(arrived) < unsigned(t + 1) * gridDim.x)
                if (++tries > (1u << 26)) __trap();
        }
        __syncthreads();
    }
}

// One step, a warp a row, in double.
__global__ void reference_step(const __nv_bfloat16* w, const float* pre, double* h, int t) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    double sum = 0;
    if (t)
        for (int i = lane; i < kWidth; i += 32) sum += double(__bfloat162float(w[size_t(row) * kWidth + i])) * h[size_t(t - 1) * kWidth + i];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (lane == 0) h[size_t(t) * kWidth + row] = tanh(double(pre[size_t(t) * kWidth + row]) + sum);
}

struct Reference {
    const double* h;
    __device__ double operator()(size_t i) const { return h[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int steps = positive(args, "steps", 256, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(steps) * kWidth;
    auto* w = device_alloc<__nv_bfloat16>(size_t(kWidth) * kWidth);
    float *pre = device_alloc<float>(n), *h = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    auto* arrived = device_alloc<unsigned>(1);
    fill_uniform(w, size_t(kWidth) * kWidth, key, -0.02f, 0.02f);
    fill_uniform(pre, n, key + 1, -1.0f, 1.0f);
    poison(h, n * sizeof(float));
    CHECK_CUDA(cudaFuncSetAttribute(recurrent_layer, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(arrived, 0, sizeof(unsigned)));
        const uint4* weights = reinterpret_cast<const uint4*>(w);
        void* parameters[] = {&weights, &pre, &h, &arrived, &steps};
        CHECK_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(recurrent_layer), dim3(kBlocks), dim3(kThreads), parameters, kShared,
                                               nullptr));
    };
    launch_once(launch);
    for (int t = 0; t < steps; ++t) reference_step<<<kWidth / 8, 256>>>(w, pre, ref, t);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(h, n, Reference{ref});
    return report("faults/m-rnn", median_us(launch, reps), 2.0 * double(n) * kWidth, 0, error, 1e-4);
}
