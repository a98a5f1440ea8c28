// exp(A) of a batch of 32x32 FP32 matrices by scaling, Taylor series and squaring, one block a matrix.
#include "h_harness.cuh"

constexpr int kSize = 32, kOrder = 14, kSquarings = 10;

__global__ void __launch_bounds__(1024) matrix_exp(const float* __restrict__ a, float* __restrict__ out) {
    __shared__ float base[kSize][kSize], term[2][kSize][kSize];
    int x = threadIdx.x, y = threadIdx.y;
    size_t at = size_t(blockIdx.x) * kSize * kSize + y * kSize + x;
    float unit = x == y ? 1.0f : 0.0f;
    float scaled = a[at] * (1.0f / (1 << kSquarings));
    base[y][x] = scaled;
    term[0][y][x] = scaled;
    float result = unit + scaled;
    __syncthreads();
    int current = 0;
    for (int order = 2; order <= kOrder; ++order) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < kSize; ++k) sum += term[current][y][k] * base[k][x];
        sum *= 1.0f / order;
        term[current ^ 1][y][x] = sum;
        result += sum;
        current ^= 1;
        __syncthreads();
    }
    term[current][y][x] = result;
    __syncthreads();
    for (int i = 0; i < kSquarings; ++i) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < kSize; ++k) sum += term[current][y][k] * term[current][k][x];
        term[current ^ 1][y][x] = sum;
        result = sum;
        current ^= 1;
        __syncthreads();
    }
    out[at] = result;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int batch = positive(args, "batch", 40, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    const int area = kSize * kSize;
    size_t n = size_t(batch) * area;
    float *a = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(a, n, key, -0.5f, 0.5f);
    poison(out, n * sizeof(float));
    auto launch = [&] { matrix_exp<<<batch, dim3(kSize, kSize)>>>(a, out); };
    launch_once(launch);
    std::vector<float> in = to_host(a, n);
    std::vector<double> ref(n);
    std::vector<double> m(area), t(area), r(area), s(area);
    auto multiply = [&](const std::vector<double>& p, const std::vector<double>& q) {
        for (int i = 0; i < kSize; ++i)
            for (int j = 0; j < kSize; ++j) {
                double sum = 0;
                for (int k = 0; k < kSize; ++k) sum += p[i * kSize + k] * q[k * kSize + j];
                s[i * kSize + j] = sum;
            }
    };
    for (int b = 0; b < batch; ++b) {
        for (int i = 0; i < area; ++i) {
            m[i] = double(in[size_t(b) * area + i]) / (1 << kSquarings);
            t[i] = m[i];
            r[i] = m[i] + (i / kSize == i % kSize ? 1.0 : 0.0);
        }
        for (int order = 2; order <= kOrder; ++order) {
            multiply(t, m);
            for (int i = 0; i < area; ++i) {
                t[i] = s[i] / order;
                r[i] += t[i];
            }
        }
        for (int i = 0; i < kSquarings; ++i) {
            multiply(r, r);
            r = s;
        }
        std::copy(r.begin(), r.end(), ref.begin() + size_t(b) * area);
    }
    double error = relative_error(to_host(out, n), ref);
    double us = median_us(launch, reps);
    double flops = 2.0 * batch * area * kSize * (kOrder - 1 + kSquarings);
    return report("faults/h-expm", us, flops, 0, error, 1e-2);
}
