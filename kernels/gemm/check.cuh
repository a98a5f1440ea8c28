// The reference of the GEMM ladder: C = A (m x k) * B (k x n), all row-major. The Hopper steps take B as its transpose (n x k):
// wgmma and the copy engine read both operands along K, as of a linear layer's weights.
#pragma once

#include "../common.cuh"

// GELU in its tanh form, which is x * sigmoid(2 u).
template <class T>
__device__ __forceinline__ T gelu(T x) {
    T u = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);  // sqrt(2 / pi)
    if constexpr (std::is_same_v<T, float>) return __fdividef(x, 1.f + __expf(-2.f * u));
    else return x / (1 + exp(-2 * u));
}

// Double precision, for the rows named in `rows` only: the whole product would take longer than the kernel under test.
template <bool TransposedB, class T>
__global__ void diagnose_reference(const T* a, const T* b, const float* bias, const int* rows, double* c, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= n) return;
    const T* row = a + size_t(rows[blockIdx.y]) * k;
    double sum = 0;
    for (int i = 0; i < k; ++i)
        sum += double(float(row[i])) * double(float(b[TransposedB ? size_t(col) * k + i : size_t(i) * n + col]));
    c[size_t(blockIdx.y) * n + col] = bias ? gelu(sum + double(bias[col])) : sum;
}

// One random row of every band of 64, and 64 rows at least: no tile of a kernel goes unseen. With a bias (one a column),
// C = gelu(A B + bias).
template <bool TransposedB = false, class In, class Out>
double gemm_error(const In* a, const In* b, const Out* c, int m, int n, int k, unsigned long long seed,
                  const float* bias = nullptr) {
    std::mt19937_64 random(seed);
    std::vector<int> rows(std::max(64, (m + 63) / 64));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = int((i * m + random() % m) / rows.size());
    int* dev_rows = device_alloc<int>(rows.size());
    double* dev_ref = device_alloc<double>(rows.size() * n);
    CHECK_CUDA(cudaMemcpy(dev_rows, rows.data(), rows.size() * sizeof(int), cudaMemcpyHostToDevice));
    diagnose_reference<TransposedB, In><<<dim3((n + 255) / 256, unsigned(rows.size())), 256>>>(a, b, bias, dev_rows, dev_ref, n, k);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    std::vector<float> out;
    for (int row : rows)
        for (Out value : to_host(c + size_t(row) * n, n)) out.push_back(float(value));
    double error = relative_error(out, to_host(dev_ref, rows.size() * n));
    CHECK_CUDA(cudaFree(dev_rows));
    CHECK_CUDA(cudaFree(dev_ref));
    return error;
}

struct GemmShape {
    int m, n, k;
    GemmShape(Args& args, int def) {
        long long sizes[] = {args.get("m", def), args.get("n", def), args.get("k", def)};
        for (long long size : sizes) require(size > 0 && size <= 65536, "--m, --n and --k must be between 1 and 65536");
        m = int(sizes[0]), n = int(sizes[1]), k = int(sizes[2]);
    }
    double flops() const { return 2.0 * m * n * k; }
    double elements() const { return double(m) * k + double(k) * n + double(m) * n; }
};
