// Sums of squares of a few long rows. `fault` gives a row to a block, `fix` to many.
#include "h_harness.cuh"

template <bool ADD>
__global__ void __launch_bounds__(512) energy(const float4* __restrict__ in, float* __restrict__ sums, int vectors) {
    __shared__ float warps[16];
    int t = threadIdx.x;
    const float4* row = in + size_t(blockIdx.y) * vectors;
    float parts[4] = {};
    int i = blockIdx.x * 512 + t, stride = gridDim.x * 512;
    for (; i + 3 * stride < vectors; i += 4 * stride)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 v = row[i + k * stride];
            parts[k] += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
    for (; i < vectors; i += stride) {
        float4 v = row[i];
        parts[0] += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    float sum = parts[0] + parts[1] + parts[2] + parts[3];
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (t % 32 == 0) warps[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < 16 ? warps[t] : 0;
        for (int s = 8; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        if (t == 0) {
            if (ADD) atomicAdd(sums + blockIdx.y, sum);
            else sums[blockIdx.y] = sum;
        }
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 10, 4096), length = positive(args, "length", 13107200, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(length % 4 == 0, "--length must be a multiple of 4");
    size_t n = size_t(rows) * length;
    float *in = device_alloc<float>(n), *sums = device_alloc<float>(rows);
    fill_uniform(in, n, key, 0.1f, 1.0f);
    poison(sums, rows * sizeof(float));
    auto vectors = reinterpret_cast<const float4*>(in);
    auto launch = [&] {
        if (fix) {
            CHECK_CUDA(cudaMemsetAsync(sums, 0, rows * sizeof(float)));
            energy<true><<<dim3(52, rows), 512>>>(vectors, sums, length / 4);
        } else {
            energy<false><<<dim3(1, rows), 512>>>(vectors, sums, length / 4);
        }
    };
    launch_once(launch);
    std::vector<float> from = to_host(in, n);
    std::vector<double> want(rows);
    for (int r = 0; r < rows; ++r) {
        double parts[8] = {};
        for (int i = 0; i < length; ++i) {
            double v = from[size_t(r) * length + i];
            parts[i % 8] += v * v;
        }
        for (double part : parts) want[r] += part;
    }
    double error = relative_error(to_host(sums, rows), want);
    return report("faults/k-fold", median_us(launch, reps), 0, 4.0 * n, error, 1e-4);
}
