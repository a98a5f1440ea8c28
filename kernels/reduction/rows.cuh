// What row softmax and RMSNorm share: the fused kernels keep a row in the registers of one block, and the result is
// compared with one in double precision everywhere.
#pragma once

#include "check.cuh"
#include "sums.cuh"

constexpr int kBlock = 256;

// reference(row, column) in double precision; ||out - ref|| / ||ref|| over the whole output.
template <class F>
__global__ void diagnose_compare(const float* out, size_t n, int columns, F reference, double* sums) {
    double difference = 0, norm = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double r = reference(i / columns, int(i % columns)), d = double(out[i]) - r;
        difference += d * d;
        norm += r * r;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        difference += __shfl_xor_sync(0xffffffffu, difference, offset);
        norm += __shfl_xor_sync(0xffffffffu, norm, offset);
    }
    if (threadIdx.x % 32 == 0) atomicAdd(sums, difference), atomicAdd(sums + 1, norm);
}

template <class F>
double rows_error(const float* out, size_t rows, int columns, F reference) {
    double* sums = device_alloc<double>(2);
    CHECK_CUDA(cudaMemset(sums, 0, 2 * sizeof(double)));
    diagnose_compare<<<1056, 256>>>(out, rows * columns, columns, reference, sums);
    CHECK_CUDA(cudaGetLastError());
    auto host = to_host(sums, 2);
    CHECK_CUDA(cudaFree(sums));
    return std::sqrt(host[0] / host[1]);
}

struct RowsShape {
    int rows, columns;
    bool fused;
    RowsShape(Args& args) {
        long long r = args.get("rows", 16384), c = args.get("columns", 8192);
        std::string variant = args.get_str("variant", "fused");
        require(r > 0 && r <= 1 << 24, "--rows must be between 1 and 2^24");
        require(c == 1024 || c == 2048 || c == 4096 || c == 8192 || c == 16384,
                "--columns must be 1024, 2048, 4096, 8192 or 16384");
        require(variant == "fused" || variant == "unfused", "--variant must be fused or unfused");
        rows = int(r), columns = int(c), fused = variant == "fused";
    }
    size_t elements() const { return size_t(rows) * columns; }
    unsigned wide_blocks() const { return unsigned((elements() / 4 + 255) / 256); }  // one float4 a thread
};

// The value of one row by one block, for the passes of the unfused variants: one read of the row.
template <class Op, class Map>
__device__ inline float reduce_row(const float4* row, int vectors, Op op, Map map, float (&scratch)[kBlock / 32]) {
    float value = Op::kNeutral;
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += kBlock) {
        float4 v = row[i];
        value = op(value, op(op(map(v.x), map(v.y)), op(map(v.z), map(v.w))));
    }
    return block_reduce<kBlock>(value, op, scratch);
}
