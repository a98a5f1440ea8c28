// RMSNorm of rows: x / sqrt(mean(x^2) + 1e-5), times a weight a column. --variant fused reads a row once, keeps it in
// registers and writes the result: 8 bytes an element. --variant unfused is what four operators of a framework do, each
// through HBM: squares, mean, scale, weight, 28 bytes an element. Each of its kernels is at the roof; the program is not.
// diagnose: expect hbm-bandwidth
#include "rows.cuh"

constexpr float kEpsilon = 1e-5f;

template <int Vectors>
__global__ void __launch_bounds__(kBlock)
    rmsnorm_fused(const float4* __restrict__ in, const float4* __restrict__ weight, float4* __restrict__ out) {
    __shared__ float scratch[kBlock / 32];
    size_t first = size_t(blockIdx.x) * (Vectors * kBlock) + threadIdx.x;
    float4 v[Vectors];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = __ldcs(in + first + i * kBlock);
#pragma unroll
    for (int i = 0; i < Vectors; ++i) sum += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
    sum = block_reduce<kBlock>(sum, Add(), scratch);
    float scale = rsqrtf(sum / (Vectors * kBlock * 4) + kEpsilon);
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
        float4 w = weight[threadIdx.x + i * kBlock];
        __stcs(out + first + i * kBlock, make_float4(v[i].x * scale * w.x, v[i].y * scale * w.y, v[i].z * scale * w.z,
                                                     v[i].w * scale * w.w));
    }
}

__global__ void rmsnorm_squares(const float4* __restrict__ in, float4* out, size_t n) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    out[i] = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
}
__global__ void __launch_bounds__(kBlock) rmsnorm_mean(const float4* __restrict__ in, float* scale, int vectors) {
    __shared__ float scratch[kBlock / 32];
    float sum = reduce_row(in + size_t(blockIdx.x) * vectors, vectors, Add(), [](float x) { return x; }, scratch);
    if (threadIdx.x == 0) scale[blockIdx.x] = rsqrtf(sum / (vectors * 4) + kEpsilon);
}
__global__ void rmsnorm_scale(const float4* __restrict__ in, const float* __restrict__ scale, float4* out, size_t n,
                              int vectors) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    float by = scale[i / vectors];
    out[i] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}
__global__ void rmsnorm_weight(const float4* in, const float4* __restrict__ weight, float4* out, size_t n, int vectors) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i], w = weight[i % vectors];
    out[i] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
}

// 1 / sqrt(mean + epsilon) of a row in double precision, one thread a row.
__global__ void rmsnorm_reference(const float* in, double* scale, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = in + size_t(row) * columns;
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += double(x[i]) * x[i];
    scale[row] = 1 / sqrt(sum / columns + double(kEpsilon));
}
struct Reference {
    const float *in, *weight;
    const double* scale;
    int columns;
    __device__ double operator()(size_t row, int column) const {
        return in[row * columns + column] * scale[row] * weight[column];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    RowsShape shape(args);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    int rows = shape.rows, columns = shape.columns, vectors = columns / 4;
    size_t n = shape.elements();
    float* in = device_alloc<float>(n);
    float* weight = device_alloc<float>(columns);
    float* out = device_alloc<float>(n);
    float* row_scale = device_alloc<float>(rows);
    fill_uniform(in, n, key, -2, 2);
    fill_uniform(weight, columns, key + 1, 0.5f, 1.5f);
    poison(out, n * sizeof(float));

    auto from = reinterpret_cast<const float4*>(in);
    auto by = reinterpret_cast<const float4*>(weight);
    auto to = reinterpret_cast<float4*>(out);
    auto launch = [&] {
        if (shape.fused) {
            if (columns == 1024) rmsnorm_fused<1><<<rows, kBlock>>>(from, by, to);
            if (columns == 2048) rmsnorm_fused<2><<<rows, kBlock>>>(from, by, to);
            if (columns == 4096) rmsnorm_fused<4><<<rows, kBlock>>>(from, by, to);
            if (columns == 8192) rmsnorm_fused<8><<<rows, kBlock>>>(from, by, to);
            if (columns == 16384) rmsnorm_fused<16><<<rows, kBlock>>>(from, by, to);
        } else {
            rmsnorm_squares<<<shape.wide_blocks(), 256>>>(from, to, n / 4);
            rmsnorm_mean<<<rows, kBlock>>>(to, row_scale, vectors);
            rmsnorm_scale<<<shape.wide_blocks(), 256>>>(from, row_scale, to, n / 4, vectors);
            rmsnorm_weight<<<shape.wide_blocks(), 256>>>(to, by, to, n / 4, vectors);
        }
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double* scale = device_alloc<double>(rows);
    rmsnorm_reference<<<(rows + 31) / 32, 32>>>(in, scale, rows, columns);
    CHECK_CUDA(cudaGetLastError());
    double error = rows_error(out, rows, columns, Reference{in, weight, scale, columns});
    std::string name = std::string("reduction/rmsnorm-") + (shape.fused ? "fused" : "unfused");
    return report(name.c_str(), median_us(launch, runs), 0, 8.0 * n, error, 1e-5);
}
