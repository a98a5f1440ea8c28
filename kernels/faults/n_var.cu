// Profit and loss of a book under each scenario, from first and second sensitivities to sixteen risk factors. `fault` writes the
// results where the host reads them (mapped memory), `fix` to the device.
#include "h_harness.cuh"

constexpr int kFactors = 16;

struct Book {
    float delta[kFactors], gamma[kFactors];
};

template <class T>
__host__ __device__ inline T contribution(T shock, float delta, float gamma) {
    return shock * (T(delta) + T(0.5) * T(gamma) * shock);
}

__device__ __forceinline__ float4 four_scenarios(const float4* __restrict__ shocks, const Book& book, size_t quads, size_t q) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int f = 0; f < kFactors; ++f) {
        float4 s = shocks[f * quads + q];
        sum.x += contribution(s.x, book.delta[f], book.gamma[f]);
        sum.y += contribution(s.y, book.delta[f], book.gamma[f]);
        sum.z += contribution(s.z, book.delta[f], book.gamma[f]);
        sum.w += contribution(s.w, book.delta[f], book.gamma[f]);
    }
    return sum;
}

__global__ void __launch_bounds__(256) scenarios_mapped(const float4* __restrict__ shocks, const __grid_constant__ Book book,
                                                        float4* __restrict__ host_result, size_t quads) {
    size_t q = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (q < quads) host_result[q] = four_scenarios(shocks, book, quads, q);
}

__global__ void __launch_bounds__(256) scenarios_device(const float4* __restrict__ shocks, const __grid_constant__ Book book,
                                                        float4* __restrict__ result, size_t quads) {
    size_t q = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (q < quads) result[q] = four_scenarios(shocks, book, quads, q);
}

struct Reference {
    const float* shocks;
    Book book;
    size_t n;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int f = 0; f < kFactors; ++f) sum += contribution(double(shocks[f * n + i]), book.delta[f], book.gamma[f]);
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "scenarios", 16777216, 1 << 26);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--scenarios must be a multiple of 4");
    float *shocks = device_alloc<float>(size_t(n) * kFactors), *result = device_alloc<float>(n), *mapped = nullptr;
    CHECK_CUDA(cudaHostAlloc(&mapped, size_t(n) * sizeof(float), cudaHostAllocMapped));
    std::memset(mapped, 0xff, size_t(n) * sizeof(float));
    void* seen = nullptr;
    CHECK_CUDA(cudaHostGetDevicePointer(&seen, mapped, 0));
    fill_uniform(shocks, size_t(n) * kFactors, key, -0.1f, 0.1f);
    poison(result, size_t(n) * sizeof(float));
    std::mt19937_64 random(key);
    std::uniform_real_distribution<float> money(-1000.0f, 1000.0f);
    Book book;
    for (int f = 0; f < kFactors; ++f) {
        book.delta[f] = money(random);
        book.gamma[f] = 5 * money(random);
    }
    unsigned blocks = blocks_for(n / 4, 256);
    auto launch = [&] {
        auto* from = reinterpret_cast<const float4*>(shocks);
        if (fix) scenarios_device<<<blocks, 256>>>(from, book, reinterpret_cast<float4*>(result), size_t(n) / 4);
        else scenarios_mapped<<<blocks, 256>>>(from, book, static_cast<float4*>(seen), size_t(n) / 4);
    };
    launch_once(launch);
    if (!fix) CHECK_CUDA(cudaMemcpy(result, mapped, size_t(n) * sizeof(float), cudaMemcpyHostToDevice));
    double error = device_error(result, n, Reference{shocks, book, size_t(n)});
    double us = median_us(launch, reps);
    CHECK_CUDA(cudaFreeHost(mapped));
    return report("faults/n-var", us, 0, 4.0 * (kFactors + 1) * n, error, 1e-5);
}
