// Softmax of rows. --variant fused reads a row once, keeps it in registers and writes the result: 8 bytes an element.
// --variant unfused is what four operators of a framework do, each through HBM: largest, exponentials, sum, division,
// 24 bytes an element. Each of its kernels is at the roof; the program is not.
// diagnose: expect hbm-bandwidth
#include "rows.cuh"

template <int Vectors>
__global__ void __launch_bounds__(kBlock) softmax_fused(const float4* __restrict__ in, float4* __restrict__ out) {
    __shared__ float scratch[2][kBlock / 32];
    size_t first = size_t(blockIdx.x) * (Vectors * kBlock) + threadIdx.x;
    float4 v[Vectors];
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = __ldcs(in + first + i * kBlock);
#pragma unroll
    for (int i = 0; i < Vectors; ++i) largest = fmaxf(largest, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    largest = block_reduce<kBlock>(largest, Max(), scratch[0]);
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
        v[i] = make_float4(__expf(v[i].x - largest), __expf(v[i].y - largest), __expf(v[i].z - largest),
                           __expf(v[i].w - largest));
        sum += sum4(v[i]);
    }
    float inverse = 1.f / block_reduce<kBlock>(sum, Add(), scratch[1]);
#pragma unroll
    for (int i = 0; i < Vectors; ++i)
        __stcs(out + first + i * kBlock,
               make_float4(v[i].x * inverse, v[i].y * inverse, v[i].z * inverse, v[i].w * inverse));
}

__global__ void __launch_bounds__(kBlock) softmax_largest(const float4* __restrict__ in, float* largest, int vectors) {
    __shared__ float scratch[kBlock / 32];
    float value = reduce_row(in + size_t(blockIdx.x) * vectors, vectors, Max(), [](float x) { return x; }, scratch);
    if (threadIdx.x == 0) largest[blockIdx.x] = value;
}
__global__ void softmax_exponentials(const float4* __restrict__ in, const float* __restrict__ largest, float4* out,
                                     size_t n, int vectors) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    float top = largest[i / vectors];
    out[i] = make_float4(__expf(v.x - top), __expf(v.y - top), __expf(v.z - top), __expf(v.w - top));
}
__global__ void __launch_bounds__(kBlock) softmax_sum(const float4* __restrict__ in, float* sum, int vectors) {
    __shared__ float scratch[kBlock / 32];
    float value = reduce_row(in + size_t(blockIdx.x) * vectors, vectors, Add(), [](float x) { return x; }, scratch);
    if (threadIdx.x == 0) sum[blockIdx.x] = value;
}
__global__ void softmax_divide(const float4* in, const float* __restrict__ sum, float4* out, size_t n, int vectors) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    float inverse = 1.f / sum[i / vectors];
    out[i] = make_float4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse);
}

// Largest value and sum of a row in double precision, one thread a row.
__global__ void softmax_reference(const float* in, double2* state, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = in + size_t(row) * columns;
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < columns; ++i) largest = fmax(largest, double(x[i]));
    for (int i = 0; i < columns; ++i) sum += exp(double(x[i]) - largest);
    state[row] = make_double2(largest, sum);
}
struct Reference {
    const float* in;
    const double2* state;
    int columns;
    __device__ double operator()(size_t row, int column) const {
        return exp(double(in[row * columns + column]) - state[row].x) / state[row].y;
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
    float* out = device_alloc<float>(n);
    float* row_value = device_alloc<float>(2 * size_t(rows));
    fill_uniform(in, n, key, -6, 6);
    poison(out, n * sizeof(float));

    auto from = reinterpret_cast<const float4*>(in);
    auto to = reinterpret_cast<float4*>(out);
    auto launch = [&] {
        if (shape.fused) {
            if (columns == 1024) softmax_fused<1><<<rows, kBlock>>>(from, to);
            if (columns == 2048) softmax_fused<2><<<rows, kBlock>>>(from, to);
            if (columns == 4096) softmax_fused<4><<<rows, kBlock>>>(from, to);
            if (columns == 8192) softmax_fused<8><<<rows, kBlock>>>(from, to);
            if (columns == 16384) softmax_fused<16><<<rows, kBlock>>>(from, to);
        } else {
            softmax_largest<<<rows, kBlock>>>(from, row_value, vectors);
            softmax_exponentials<<<shape.wide_blocks(), 256>>>(from, row_value, to, n / 4, vectors);
            softmax_sum<<<rows, kBlock>>>(to, row_value + rows, vectors);
            softmax_divide<<<shape.wide_blocks(), 256>>>(to, row_value + rows, to, n / 4, vectors);
        }
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double2* state = device_alloc<double2>(rows);
    softmax_reference<<<(rows + 31) / 32, 32>>>(in, state, rows, columns);
    CHECK_CUDA(cudaGetLastError());
    double error = rows_error(out, rows, columns, Reference{in, state, columns});
    std::string name = std::string("reduction/softmax-") + (shape.fused ? "fused" : "unfused");
    return report(name.c_str(), median_us(launch, runs), 0, 8.0 * n, error, 1e-5);
}
