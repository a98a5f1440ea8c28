// mma.sync, the warp-level Tensor path, by types and accumulator, dense and 2:4 sparse; random operands in registers.
#include <cuda_fp8.h>

#include "measure.cuh"

namespace {

constexpr int kThreads = 256, kTiles = 8, kUnroll = 4;  // 8 independent accumulators a warp cover the latency

// Registers are 32 bits wide whatever they hold (PTX takes .b32 for .f32, .s32 and .f16x2); FP64 has its own kernel.
#define CEILING_MMA(STRUCT, KEY, OPS, D, TEXT, METADATA)                                                                   \
    struct STRUCT {                                                                                                        \
        static constexpr const char* key = KEY;                                                                            \
        static constexpr double operations = OPS;                                                                          \
        static __device__ __forceinline__ void run(uint32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],       \
                                                   uint32_t meta) {                                                        \
            CEILING_MMA_##D(TEXT, METADATA)                                                                                \
        }                                                                                                                  \
    };
#define CEILING_MMA_4(TEXT, METADATA)                                                                                      \
    asm volatile(TEXT "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}" METADATA ";"                        \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#define CEILING_MMA_2(TEXT, METADATA)                                                                                      \
    asm volatile(TEXT "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1}" METADATA ";"                                        \
                 : "+r"(d[0]), "+r"(d[1])                                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#define CEILING_MMA_SPARSE(TEXT, METADATA)                                                                                 \
    asm volatile(TEXT "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"                \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta));

CEILING_MMA(Bf16, "tensor:mma:bf16:fp32:m16n8k16", 2.0 * 16 * 8 * 16, 4,
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ", "")
CEILING_MMA(Fp16, "tensor:mma:fp16:fp32:m16n8k16", 2.0 * 16 * 8 * 16, 4, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 ",
            "")
CEILING_MMA(Fp16Short, "tensor:mma:fp16:fp16:m16n8k16", 2.0 * 16 * 8 * 16, 2,
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 ", "")
CEILING_MMA(Tf32, "tensor:mma:tf32:fp32:m16n8k8", 2.0 * 16 * 8 * 8, 4, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 ",
            "")
CEILING_MMA(Int8, "tensor:mma:int8:int32:m16n8k32", 2.0 * 16 * 8 * 32, 4, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 ",
            "")
CEILING_MMA(Bf16Sparse, "tensor:sparse-mma:bf16:fp32:m16n8k32", 2.0 * 16 * 8 * 32, SPARSE,
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 ", "")
CEILING_MMA(Int8Sparse, "tensor:sparse-mma:int8:int32:m16n8k64", 2.0 * 16 * 8 * 64, SPARSE,
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 ", "")
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
CEILING_MMA(E4m3, "tensor:mma:e4m3:fp32:m16n8k32", 2.0 * 16 * 8 * 32, 4, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 ",
            "")
#else
struct E4m3 {
    static constexpr const char* key = "";
    static constexpr double operations = 0;
    static __device__ void run(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[4], uint32_t) { __trap(); }
};
#endif

// Metadata: for each group of four the two kept, as two increasing 2-bit places: one of six patterns a group.
__device__ __forceinline__ uint32_t metadata(uint32_t random) {
    uint32_t meta = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) meta |= ((0xedc984edc984edc9ull >> (4 * ((random >> (4 * i)) & 15))) & 15) << (4 * i);
    return meta;
}

template <class Instruction>
__global__ void __launch_bounds__(kThreads) mma_loop(const uint4* in, int rounds, Stamp* stamps) {
    uint32_t d[kTiles][4] = {}, a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        uint4 left = in[threadIdx.x + i * kThreads], right = in[threadIdx.x + (2 + i) * kThreads];
        a[i][0] = left.x, a[i][1] = left.y, a[i][2] = left.z, a[i][3] = left.w;
        b[i][0] = right.x, b[i][1] = right.y, b[i][2] = right.z, b[i][3] = right.w;
    }
    const uint32_t meta = metadata(a[0][0] ^ b[0][0]);
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int t = 0; t < kTiles; ++t) Instruction::run(d[t], a[u % 2], b[t % 2], meta);
    uint32_t sum = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) sum ^= d[t][0] ^ d[t][1] ^ d[t][2] ^ d[t][3];
    keep(sum, stamps);
    end(stamp, stamps);
}

__global__ void __launch_bounds__(kThreads) mma_fp64(const double* in, int rounds, Stamp* stamps) {
    double d[kTiles][2] = {}, a = in[threadIdx.x], b = in[threadIdx.x + kThreads];
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+d"(d[t][0]), "+d"(d[t][1])
                         : "d"(a), "d"(b));
    double sum = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) sum += d[t][0] + d[t][1];
    keep(uint32_t(__double_as_longlong(sum)), stamps);
    end(stamp, stamps);
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void __launch_bounds__(kThreads) mma_fp64_wide(const double* in, int rounds, Stamp* stamps) {
    double d[kTiles][4] = {}, a[8], b[4];
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = in[threadIdx.x + i];
#pragma unroll
    for (int i = 0; i < 4; ++i) b[i] = in[threadIdx.x + 8 + i];
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
                         "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
                         : "+d"(d[t][0]), "+d"(d[t][1]), "+d"(d[t][2]), "+d"(d[t][3])
                         : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
                           "d"(b[1]), "d"(b[2]), "d"(b[3]));
    double sum = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) sum += d[t][0] + d[t][1] + d[t][2] + d[t][3];
    keep(uint32_t(__double_as_longlong(sum)), stamps);
    end(stamp, stamps);
}
#else
__global__ void mma_fp64_wide(const double*, int, Stamp*) { __trap(); }
#endif

template <class Instruction>
void measure(Bench& bench, const void* in) {
    const int blocks = bench.sms() * 2, rounds = 1000;
    rate(bench, Instruction::key, "op/s", Instruction::operations * kTiles * kUnroll * (kThreads / 32) * rounds * blocks, blocks,
         [&](Stamp* s) { mma_loop<Instruction><<<blocks, kThreads>>>(static_cast<const uint4*>(in), rounds, s); });
}

__global__ void to_e4m3(__nv_fp8_e4m3* out, const float* in, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        out[i] = __nv_fp8_e4m3(in[i]);
}

}  // namespace

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    constexpr size_t kValues = 4 * kThreads * sizeof(uint4);  // elements of one byte; wider ones are more than enough
    auto* bf16 = device_alloc<__nv_bfloat16>(kValues);
    auto* fp16 = device_alloc<__half>(kValues);
    auto* fp32 = device_alloc<float>(kValues);
    auto* fp64 = device_alloc<double>(kValues);
    auto* bytes = device_alloc<uint8_t>(kValues);
    auto* e4m3 = device_alloc<__nv_fp8_e4m3>(kValues);
    fill_uniform(bf16, kValues, key, -1, 1);
    fill_uniform(fp16, kValues, key + 1, -1, 1);
    fill_uniform(fp32, kValues, key + 2, -1, 1);
    fill_uniform(fp64, kValues, key + 3, -1, 1);
    fill_uniform(bytes, kValues, key + 4, 0, 0);
    to_e4m3<<<64, 256>>>(e4m3, fp32, kValues);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    wake(bench, 100);
    const int capability = bench.properties.major * 10 + bench.properties.minor;
    measure<Bf16>(bench, bf16);
    measure<Fp16>(bench, fp16);
    measure<Fp16Short>(bench, fp16);
    measure<Tf32>(bench, fp32);
    measure<Int8>(bench, bytes);
    // sm_90 has no such instruction: there it is made of conversions, additions and FP16 products, part of which the compiler
    // shares between equal operands, so that a count of instructions would be no rate.
    if (capability >= 89 && capability != 90) measure<E4m3>(bench, e4m3);
    measure<Bf16Sparse>(bench, bf16);
    measure<Int8Sparse>(bench, bytes);
    const int blocks = bench.sms() * 2, warps = kThreads / 32, rounds = 1000;
    rate(bench, "tensor:mma:fp64:fp64:m8n8k4", "op/s", 2.0 * 8 * 8 * 4 * kTiles * warps * (3 * rounds) * blocks, blocks,
         [&](Stamp* s) { mma_fp64<<<blocks, kThreads>>>(fp64, 3 * rounds, s); });
    if (capability >= 90)
        rate(bench, "tensor:mma:fp64:fp64:m16n8k16", "op/s", 2.0 * 16 * 8 * 16 * kTiles * warps * (rounds / 5) * blocks, blocks,
             [&](Stamp* s) { mma_fp64_wide<<<blocks, kThreads>>>(fp64, rounds / 5, s); });
    return 0;
}
