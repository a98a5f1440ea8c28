// y = scale * W x with ternary weights (two bits, 0 1 2 for -1 0 1) and int8 activations. The weights are stored in groups of
// 16: word j of lane l's 16 bytes holds group j * 32 + l of its 2048 weights; weight 4 * i + b of a group is at bit 8 * b + 2 * i.
// `fault` widens weights and activations to float; `fix` multiplies four bytes at a time (dp4a).
#include "h_harness.cuh"

constexpr int kThreads = 256, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) ternary_project(const uint4* __restrict__ w, const uint4* __restrict__ x, float* __restrict__ y,
                                                            int n, int k, float scale) {
    extern __shared__ uint4 xs[];
    for (int i = threadIdx.x; i < k / 16; i += kThreads) xs[i] = x[i];
    __syncthreads();
    int lane = threadIdx.x % 32;
    for (int row = blockIdx.x * kWarps + threadIdx.x / 32; row < n; row += gridDim.x * kWarps) {
        const uint4* from = w + size_t(row) * (k / 64);
        float sum = 0;
        for (int it = 0; it < k / 2048; ++it) {
            uint4 q = from[it * 32 + lane];
            const unsigned words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                uint4 v = xs[it * 128 + j * 32 + lane];
                const unsigned values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int b = 0; b < 4; ++b) {
                        float weight = float(int(words[j] >> (8 * b + 2 * i) & 3u)) - 1.0f;
                        sum += weight * float(int8_t(values[i] >> (8 * b)));
                    }
            }
        }
        for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        if (lane == 0) y[row] = scale * sum;
    }
}

__global__ void __launch_bounds__(kThreads) ternary_project_bytes(const uint4* __restrict__ w, const uint4* __restrict__ x,
                                                                  float* __restrict__ y, int n, int k, float scale) {
    extern __shared__ uint4 xs[];
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int own = 0;
    for (int i = threadIdx.x; i < k / 16; i += kThreads) {
        uint4 v = x[i];
        xs[i] = v;
        own = __dp4a(int(v.x), 0x01010101, __dp4a(int(v.y), 0x01010101, __dp4a(int(v.z), 0x01010101, __dp4a(int(v.w), 0x01010101, own))));
    }
    atomicAdd(&total, own);
    __syncthreads();
    int lane = threadIdx.x % 32, offset = total;
    for (int row = blockIdx.x * kWarps + threadIdx.x / 32; row < n; row += gridDim.x * kWarps) {
        const uint4* from = w + size_t(row) * (k / 64);
        int sum = 0;
#pragma unroll 4
        for (int it = 0; it < k / 2048; ++it) {
            uint4 q = from[it * 32 + lane];
            const unsigned words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                uint4 v = xs[it * 128 + j * 32 + lane];
                const unsigned values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int i = 0; i < 4; ++i) sum = __dp4a(int(words[j] >> (2 * i) & 0x03030303u), int(values[i]), sum);
            }
        }
        for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        if (lane == 0) y[row] = scale * float(sum - offset);
    }
}

struct Reference {
    const unsigned* w;
    const int8_t* x;
    int k;
    float scale;
    __device__ double operator()(size_t row) const {
        int sum = 0;
        for (int c = 0; c < k; ++c) {
            int group = c % 2048 / 16, e = c % 16;
            unsigned word = w[row * (k / 16) + c / 2048 * 128 + group % 32 * 4 + group / 32];
            sum += (int(word >> (8 * (e % 4) + 2 * (e / 4)) & 3u) - 1) * int(x[c]);
        }
        return double(scale) * sum;
    }
};

// Codes of 3 do not exist: clears the low bit of such pairs.
__global__ void make_ternary(unsigned* w, size_t words) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        w[i] &= ~(w[i] >> 1 & 0x55555555u);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 135168, 1 << 20), k = 4 * positive(args, "rowbytes", 2048, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(k % 2048 == 0 && k <= 32768, "--rowbytes must be a multiple of 512, at most 8192");
    size_t words = size_t(n) * (k / 16);
    auto* w = device_alloc<unsigned>(words);
    auto* x = device_alloc<int8_t>(k);
    float* y = device_alloc<float>(n);
    fill_uniform(reinterpret_cast<uint8_t*>(w), words * 4, key, 0.0f, 256.0f);
    launch_once([&] { make_ternary<<<1056, 256>>>(w, words); });
    fill_uniform(reinterpret_cast<uint8_t*>(x), k, key + 1, 0.0f, 256.0f);
    poison(y, n * sizeof(float));
    const float scale = 0.0123f;
    auto launch = [&] {
        auto kernel = fix ? ternary_project_bytes : ternary_project;
        kernel<<<1056, kThreads, k>>>(reinterpret_cast<uint4*>(w), reinterpret_cast<uint4*>(x), y, n, k, scale);
    };
    launch_once(launch);
    double error = device_error(y, n, Reference{w, x, k, scale});
    return report("faults/m-bitnet", median_us(launch, reps), 0, double(words) * 4, error, 1e-4);
}
