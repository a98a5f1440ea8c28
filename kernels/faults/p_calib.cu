// Calibration for per-channel quantisation: the largest magnitude of each channel over all tokens, and how many values would clip at the
// present scale (bf16 activations [token][channel]).
#include "p_harness.cuh"

constexpr int kTokens = 128;  // tokens a block

struct Clip {
    float limit;
    __device__ int count(const float (&v)[8]) const {
        int over = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) over += v[i] > limit;
        return over;
    }
};

__device__ __forceinline__ void magnitudes(uint4 raw, float (&v)[8]) {
    uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float2 p = p_unpack(w[i] & 0x7fff7fffu);
        v[2 * i] = p.x;
        v[2 * i + 1] = p.y;
    }
}

__device__ void add_clipped(int over, unsigned* clipped) {
    over = __reduce_add_sync(0xffffffffu, over);
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(&total, over);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(clipped, unsigned(total));
}

__global__ void __launch_bounds__(256) observe_range(const uint4* __restrict__ x, int* __restrict__ most, unsigned* __restrict__ clipped,
                                                     int eighths, Clip clip) {
    int over = 0, c = blockIdx.x * 256 + threadIdx.x;
    const uint4* from = x + size_t(blockIdx.y) * kTokens * eighths + c;
#pragma unroll 4
    for (int t = 0; t < kTokens; ++t) {
        float v[8];
        magnitudes(from[size_t(t) * eighths], v);
        over += clip.count(v);
#pragma unroll
        for (int i = 0; i < 8; ++i) atomicMax(&most[c * 8 + i], __float_as_int(v[i]));
    }
    add_clipped(over, clipped);
}

__global__ void __launch_bounds__(256) observe_range_running(const uint4* __restrict__ x, int* __restrict__ most,
                                                             unsigned* __restrict__ clipped, int eighths, Clip clip) {
    int over = 0, c = blockIdx.x * 256 + threadIdx.x;
    const uint4* from = x + size_t(blockIdx.y) * kTokens * eighths + c;
    float top[8] = {};
#pragma unroll 4
    for (int t = 0; t < kTokens; ++t) {
        float v[8];
        magnitudes(from[size_t(t) * eighths], v);
        over += clip.count(v);
#pragma unroll
        for (int i = 0; i < 8; ++i) top[i] = fmaxf(top[i], v[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) atomicMax(&most[c * 8 + i], __float_as_int(top[i]));
    add_clipped(over, clipped);
}

struct Reference {
    const __nv_bfloat16* x;
    int tokens, channels;
    __device__ double operator()(size_t c) const {
        float most = 0;
        for (int t = 0; t < tokens; ++t) most = fmaxf(most, fabsf(__bfloat162float(x[size_t(t) * channels + c])));
        return most;
    }
};

__global__ void count_over(const __nv_bfloat16* x, size_t n, float limit, unsigned long long* count) {
    unsigned mine = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        mine += fabsf(__bfloat162float(x[i])) > limit;
    atomicAdd(count, (unsigned long long)mine);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 65536, 1 << 18), channels = positive(args, "channels", 4096, 8192);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(tokens % kTokens == 0 && channels % 2048 == 0, "--tokens must be a multiple of 128, --channels of 2048");
    size_t n = size_t(tokens) * channels;
    auto* x = device_alloc<__nv_bfloat16>(n);
    int* most = device_alloc<int>(channels);
    unsigned* clipped = device_alloc<unsigned>(1);
    auto* wanted = device_alloc<unsigned long long>(1);
    fill_uniform(x, n, key, -4.0f, 4.0f);
    Clip clip{3.5f};
    CHECK_CUDA(cudaMemset(most, 0, size_t(channels) * 4));
    CHECK_CUDA(cudaMemset(clipped, 0, 4));
    CHECK_CUDA(cudaMemset(wanted, 0, 8));
    auto launch = [&] {
        auto kernel = fix ? observe_range_running : observe_range;
        kernel<<<dim3(channels / 2048, tokens / kTokens), 256>>>(reinterpret_cast<uint4*>(x), most, clipped, channels / 8, clip);
    };
    launch_once(launch);
    count_over<<<2048, 256>>>(x, n, clip.limit, wanted);
    CHECK_CUDA(cudaGetLastError());
    unsigned found = to_host(clipped, 1)[0];
    require(found == unsigned(to_host(wanted, 1)[0]), "clipped values: " + std::to_string(found));
    double error = device_error(reinterpret_cast<float*>(most), size_t(channels), Reference{x, tokens, channels});
    return report("faults/p-calib", median_us(launch, reps), 0, 2.0 * n, error, 0);
}
