// What the g_ programs share beyond common.cuh: variants, device comparison, mbarriers and bulk copies.
#pragma once
#include "../common.cuh"

namespace held {

inline bool wants_fix(Args& args) {
    std::string v = args.get_str("variant", "fix");
    require(v == "fault" || v == "fix", "--variant must be fault or fix, got " + v);
    return v == "fix";
}

template <class T>
__device__ inline double as_double(T v) { return double(v); }
template <>
__device__ inline double as_double(__nv_bfloat16 v) { return double(__bfloat162float(v)); }
template <>
__device__ inline double as_double(__half v) { return double(__half2float(v)); }

template <class T, class R>
__global__ void compare_kernel(const T* out, const R* ref, size_t n, double* sums) {
    double d2 = 0, r2 = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double r = as_double(ref[i]), d = as_double(out[i]) - r;
        d2 += d * d;
        r2 += r * r;
    }
    for (int s = 16; s; s >>= 1) {
        d2 += __shfl_xor_sync(0xffffffffu, d2, s);
        r2 += __shfl_xor_sync(0xffffffffu, r2, s);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sums, d2);
        atomicAdd(sums + 1, r2);
    }
}

// ||out - ref|| / ||ref|| of device arrays; NaN stays NaN.
template <class T, class R>
double device_error(const T* out, const R* ref, size_t n) {
    double* sums = device_alloc<double>(2);
    CHECK_CUDA(cudaMemset(sums, 0, 2 * sizeof(double)));
    compare_kernel<<<unsigned(std::min<size_t>((n + 255) / 256, 1056)), 256>>>(out, ref, n, sums);
    CHECK_CUDA(cudaGetLastError());
    std::vector<double> host = to_host(sums, 2);
    CHECK_CUDA(cudaFree(sums));
    if (host[1] == 0) return host[0] == 0 ? 0.0 : (double)INFINITY;
    return std::sqrt(host[0] / host[1]);
}

inline void finish() {
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
}

template <class K>
void allow_shared(K kernel, size_t bytes) {
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

__device__ __forceinline__ uint32_t sh(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void bar_init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sh(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_init_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void bar_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sh(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sh(bar)) : "memory");
}
// Gives up (and fails the launch) rather than hang.
__device__ __forceinline__ void bar_wait(uint64_t* bar, uint32_t parity) {
    uint32_t address = sh(bar);
    for (int i = 0; i < (1 << 22); ++i) {
        uint32_t done;
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(address), "r"(parity)
            : "memory");
        if (done) return;
    }
    __trap();
}
__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sh(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(sh(bar))
                 : "memory");
}
__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
                 "r"(sh(shared)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float lg2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace held
