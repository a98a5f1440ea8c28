// Arithmetic pipes and instruction issue: independent chains of one instruction each, in registers only.
#include "measure.cuh"

constexpr int kThreads = 512, kChains = 8, kUnroll = 16;

enum class Op { fp32, fp64, fp16x2, imad, alu, sfu, mixed };

// `volatile` text, so that the compiler neither folds nor drops a link; permute (ALU) cannot be fused with its like, as
// two adds could be.
template <Op O, class T>
__device__ __forceinline__ void link(T& x, T y, T z) {
    if constexpr (O == Op::fp32) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(y), "f"(z));
    if constexpr (O == Op::fp64) asm volatile("fma.rn.f64 %0, %0, %1, %2;" : "+d"(x) : "d"(y), "d"(z));
    if constexpr (O == Op::fp16x2) asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(z));
    if constexpr (O == Op::imad) asm volatile("mad.lo.s32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(z));
    if constexpr (O == Op::alu) asm volatile("prmt.b32 %0, %0, %1, %2;" : "+r"(x) : "r"(y), "r"(z));
    if constexpr (O == Op::sfu) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
}
template <class T>
__device__ __forceinline__ uint32_t bits(T x) {
    if constexpr (sizeof(T) == 8) return uint32_t(__double_as_longlong(x) >> 20);
    else if constexpr (std::is_same_v<T, float>) return __float_as_uint(x);
    else return x;
}

template <Op O, class T>
__global__ void __launch_bounds__(kThreads) chains(const T* in, int rounds, Stamp* stamps) {
    T x[kChains], y = in[threadIdx.x + kThreads], z = in[threadIdx.x + 2 * kThreads];
    uint32_t whole[kChains];
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = in[threadIdx.x + c], whole[c] = bits(x[c]);
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int c = 0; c < kChains; ++c) {
                if constexpr (O == Op::mixed) {  // two pipes by turns: neither is full, the schedulers are
                    if (c % 2) link<Op::alu>(whole[c], bits(y), bits(z));
                    else link<Op::fp32>(x[c], y, z);
                } else {
                    link<O>(x[c], y, z);
                }
            }
    uint32_t sum = 0;
#pragma unroll
    for (int c = 0; c < kChains; ++c) sum ^= bits(x[c]) ^ whole[c];
    keep(sum, stamps);
    end(stamp, stamps);
}

template <Op O, class T>
void measure(Bench& bench, const char* key, const char* unit, int operations, int rounds, const T* in) {
    const int blocks = bench.sms() * 2;
    double work = double(blocks) * kThreads * kChains * kUnroll * rounds * operations;
    if constexpr (O == Op::mixed) work /= 32;  // warp instructions
    rate(bench, key, unit, work, blocks, [&](Stamp* s) { chains<O, T><<<blocks, kThreads>>>(in, rounds, s); });
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    constexpr size_t kValues = 4 * kThreads;
    auto* floats = device_alloc<float>(kValues);
    auto* doubles = device_alloc<double>(kValues);
    auto* words = device_alloc<uint32_t>(kValues);
    auto* halves = device_alloc<__half>(2 * kValues);
    fill_uniform(floats, kValues, key, -0.9f, 0.9f);  // |factor| < 1: the chains stay finite
    fill_uniform(doubles, kValues, key + 1, -0.9f, 0.9f);
    fill_uniform(words, kValues, key + 2, 0, 4294967040.0f);
    fill_uniform(halves, 2 * kValues, key + 3, -0.9f, 0.9f);
    wake(bench, 100);
    // About half a millisecond each.
    measure<Op::fp32>(bench, "fp32", "op/s", 2, 1000, floats);
    measure<Op::fp64>(bench, "fp64", "op/s", 2, 500, doubles);
    measure<Op::fp16x2>(bench, "fp16", "op/s", 4, 1000, reinterpret_cast<uint32_t*>(halves));
    measure<Op::alu>(bench, "int", "op/s", 1, 500, words);
    measure<Op::imad>(bench, "int:imad", "op/s", 1, 500, words);
    measure<Op::sfu>(bench, "sfu", "op/s", 1, 120, floats);
    measure<Op::mixed>(bench, "issue", "inst/s", 1, 1000, floats);
    return 0;
}
