// Weights from 4-bit NormalFloat codes (a scale for 64 weights) to bf16. --table: constant or shared memory holds the 16 levels.
#include "h_harness.cuh"

__constant__ float levels[16] = {-1.0f,        -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
                                 -0.09105004f, 0.0f,         0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                                 0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

template <class Level>
__device__ __forceinline__ uint4 widen(unsigned codes, float scale, Level level) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(level(codes >> (8 * i) & 15u) * scale, level(codes >> (8 * i + 4) & 15u) * scale);
        memcpy(&words[i], &pair, 4);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__global__ void __launch_bounds__(256) nf4_dequantise(const unsigned* __restrict__ codes, const float* __restrict__ scales,
                                                      uint4* __restrict__ out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = widen(codes[i], scales[i / 8], [](unsigned c) { return levels[c]; });
}

__global__ void __launch_bounds__(256) nf4_dequantise_shared(const unsigned* __restrict__ codes, const float* __restrict__ scales,
                                                             uint4* __restrict__ out, int n) {
    __shared__ float table[16];
    if (threadIdx.x < 16) table[threadIdx.x] = levels[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = widen(codes[i], scales[i / 8], [&](unsigned c) { return table[c]; });
}

struct Reference {
    const unsigned* codes;
    const float* scales;
    __device__ double operator()(size_t i) const {
        return double(levels[codes[i / 8] >> (4 * (i % 8)) & 15u]) * double(scales[i / 64]);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string table = args.get_str("table", "constant");
    require(table == "constant" || table == "shared", "--table must be constant or shared, got " + table);
    int n = 64 * positive(args, "groups", 4194304, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    auto* codes = device_alloc<unsigned>(n / 8);
    float* scales = device_alloc<float>(n / 64);
    auto* out = device_alloc<__nv_bfloat16>(n);
    fill_uniform(reinterpret_cast<uint8_t*>(codes), size_t(n) / 2, key, 0.0f, 256.0f);
    fill_uniform(scales, n / 64, key + 1, 0.1f, 1.0f);
    poison(out, size_t(n) * 2);
    auto launch = [&] {
        auto kernel = table == "shared" ? nf4_dequantise_shared : nf4_dequantise;
        kernel<<<blocks_for(n / 8, 256), 256>>>(codes, scales, reinterpret_cast<uint4*>(out), n / 8);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{codes, scales});
    return report("faults/m-nf4", median_us(launch, reps), 0, 2.5625 * n, error, 5e-3);
}
