// RMSNorm, a block a row, the row kept in shared memory. --reserve: row (what the row needs) or longest (the room for the longest
// row that the GPU could take).
#include "h_harness.cuh"

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) rms_norm(const float4* __restrict__ x, const float4* __restrict__ w, float4* __restrict__ y,
                                                     int vectors) {
    extern __shared__ float4 row[];
    __shared__ float parts[kThreads / 32];
    const float4* from = x + size_t(blockIdx.x) * vectors;
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
        float4 v = from[i];
        row[i] = v;
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    float scale = rsqrtf((parts[0] + parts[1] + parts[2] + parts[3]) / float(4 * vectors) + 1e-6f);
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
        float4 v = row[i], u = w[i];
        y[size_t(blockIdx.x) * vectors + i] = make_float4(v.x * scale * u.x, v.y * scale * u.y, v.z * scale * u.z, v.w * scale * u.w);
    }
}

// One block a row: 1 / root mean square.
__global__ void reference_scale(const float* x, double* scale, int hidden) {
    __shared__ double parts[8];
    double sum = 0;
    for (int i = threadIdx.x; i < hidden; i += 256) sum += double(x[size_t(blockIdx.x) * hidden + i]) * x[size_t(blockIdx.x) * hidden + i];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; ++i) sum += parts[i];
    scale[blockIdx.x] = 1 / sqrt(sum / hidden + 1e-6);
}

struct Reference {
    const float *x, *w;
    const double* scale;
    int hidden;
    __device__ double operator()(size_t i) const { return double(x[i]) * scale[i / hidden] * w[i % hidden]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string reserve = args.get_str("reserve", "longest");
    require(reserve == "longest" || reserve == "row", "--reserve must be longest or row, got " + reserve);
    int rows = positive(args, "rows", 67584, 1 << 22), hidden = positive(args, "hidden", 2048, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(hidden % 4 == 0, "--hidden must be a multiple of 4");
    size_t n = size_t(rows) * hidden;
    float *x = device_alloc<float>(n), *w = device_alloc<float>(hidden), *y = device_alloc<float>(n);
    double* scale = device_alloc<double>(rows);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(w, hidden, key + 1, 0.5f, 1.5f);
    poison(y, n * sizeof(float));
    int shared = reserve == "row" ? hidden * 4 : 200 * 1024;
    CHECK_CUDA(cudaFuncSetAttribute(rms_norm, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    auto launch = [&] {
        rms_norm<<<rows, kThreads, shared>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(w), reinterpret_cast<float4*>(y),
                                             hidden / 4);
    };
    launch_once(launch);
    launch_once([&] { reference_scale<<<rows, 256>>>(x, scale, hidden); });
    double error = device_error(y, n, Reference{x, w, scale, hidden});
    return report("faults/m-rms", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
