// wgmma by types, accumulator and shape: A from shared memory (SS) or registers (RS), dense or 2:4 sparse; random operands.
#include <cuda_fp8.h>

#include "../hopper.cuh"
#include "measure.cuh"

constexpr int kUnroll = 16;

// --- wgmma. All accumulators are 32-bit registers, whatever they hold: PTX takes .b32 for .f32, .s32 and .f16x2.

enum class Kind { bf16_f32, fp16_f32, fp16_fp16, tf32_f32, e4m3_f32, e4m3_fp16, int8_int32 };

template <Kind T, int N, bool Sparse>
struct Mma;

#define C_D1(i) "+r"(d[i])
#define C_D2(i) C_D1(i), C_D1(i + 1)
#define C_D4(i) C_D2(i), C_D2(i + 2)
#define C_D8(i) C_D4(i), C_D4(i + 4)
#define C_D16(i) C_D8(i), C_D8(i + 8)
#define C_D32(i) C_D16(i), C_D16(i + 16)
#define C_D64(i) C_D32(i), C_D32(i + 32)
#define C_D128(i) C_D64(i), C_D64(i + 64)
#define C_R2 "%0, %1"
#define C_R4 C_R2 ", %2, %3"
#define C_R8 C_R4 ", %4, %5, %6, %7"
#define C_R16 C_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define C_R32 HOPPER_R32
#define C_R64 HOPPER_R64
#define C_R128 HOPPER_R128

// TAIL: what follows scale-d: the signs, and for 16-bit types the transpositions; int8 has neither.
#define CEILING_WGMMA(KIND, N_, COUNT, NAME, SS_TAIL, RS_TAIL, P0, P1, P2, P3, P4)                                                  \
    template <>                                                                                                                    \
    struct Mma<KIND, N_, false> {                                                                                                  \
        static constexpr int count = COUNT;                                                                                        \
        static __device__ __forceinline__ void ss(uint32_t (&d)[COUNT], uint64_t a, uint64_t b, uint32_t) {                        \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N_ NAME " {" C_R##COUNT "}, %" P0 ", %" P1 ", 1" SS_TAIL ";"         \
                         : C_D##COUNT(0)                                                                                           \
                         : "l"(a), "l"(b));                                                                                        \
        }                                                                                                                          \
        static __device__ __forceinline__ void rs(uint32_t (&d)[COUNT], const uint32_t (&a)[4], uint64_t b) {                      \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N_ NAME " {" C_R##COUNT "}, {%" P0 ", %" P1 ", %" P2 ", %" P3        \
                         "}, %" P4 ", 1" RS_TAIL ";"                                                                               \
                         : C_D##COUNT(0)                                                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                    \
        }                                                                                                                          \
    };
// 2:4 sparse: a's descriptor is of the kept half, `meta` says which two of four.
#define CEILING_WGMMA_SP(KIND, N_, COUNT, NAME, SS_TAIL, P0, P1, P2)                                                               \
    template <>                                                                                                                    \
    struct Mma<KIND, N_, true> {                                                                                                   \
        static constexpr int count = COUNT;                                                                                        \
        static __device__ __forceinline__ void ss(uint32_t (&d)[COUNT], uint64_t a, uint64_t b, uint32_t meta) {                   \
            asm volatile("wgmma.mma_async.sp.sync.aligned.m64n" #N_ NAME " {" C_R##COUNT "}, %" P0 ", %" P1 ", %" P2               \
                         ", 0, 1" SS_TAIL ";"                                                                                      \
                         : C_D##COUNT(0)                                                                                           \
                         : "l"(a), "l"(b), "r"(meta));                                                                             \
        }                                                                                                                          \
    };
#define C_BOTH(KIND, N_, COUNT, K, K_SPARSE, TYPES, SS_TAIL, RS_TAIL, P0, P1, P2, P3, P4)                                          \
    CEILING_WGMMA(KIND, N_, COUNT, K TYPES, SS_TAIL, RS_TAIL, P0, P1, P2, P3, P4)                                                  \
    CEILING_WGMMA_SP(KIND, N_, COUNT, K_SPARSE TYPES, SS_TAIL, P0, P1, P2)
#define C_WIDE(N_, COUNT, ...)                                                                                                     \
    C_BOTH(Kind::bf16_f32, N_, COUNT, "k16", "k32", ".f32.bf16.bf16", ", 1, 1, 0, 0", ", 1, 1, 0", __VA_ARGS__)                    \
    C_BOTH(Kind::fp16_f32, N_, COUNT, "k16", "k32", ".f32.f16.f16", ", 1, 1, 0, 0", ", 1, 1, 0", __VA_ARGS__)                      \
    C_BOTH(Kind::tf32_f32, N_, COUNT, "k8", "k16", ".f32.tf32.tf32", ", 1, 1", ", 1, 1", __VA_ARGS__)                              \
    C_BOTH(Kind::e4m3_f32, N_, COUNT, "k32", "k64", ".f32.e4m3.e4m3", ", 1, 1", ", 1, 1", __VA_ARGS__)                             \
    C_BOTH(Kind::int8_int32, N_, COUNT, "k32", "k64", ".s32.s8.s8", "", "", __VA_ARGS__)
#define C_HALF(N_, COUNT, ...)                                                                                                     \
    C_BOTH(Kind::fp16_fp16, N_, COUNT, "k16", "k32", ".f16.f16.f16", ", 1, 1, 0, 0", ", 1, 1, 0", __VA_ARGS__)                     \
    C_BOTH(Kind::e4m3_fp16, N_, COUNT, "k32", "k64", ".f16.e4m3.e4m3", ", 1, 1", ", 1, 1", __VA_ARGS__)
C_WIDE(8, 4, "4", "5", "6", "7", "8")
C_WIDE(16, 8, "8", "9", "10", "11", "12")
C_WIDE(32, 16, "16", "17", "18", "19", "20")
C_WIDE(64, 32, "32", "33", "34", "35", "36")
C_WIDE(128, 64, "64", "65", "66", "67", "68")
C_WIDE(256, 128, "128", "129", "130", "131", "132")
C_HALF(8, 2, "2", "3", "4", "5", "6")
C_HALF(16, 4, "4", "5", "6", "7", "8")
C_HALF(32, 8, "8", "9", "10", "11", "12")
C_HALF(64, 16, "16", "17", "18", "19", "20")
C_HALF(128, 32, "32", "33", "34", "35", "36")
C_HALF(256, 64, "64", "65", "66", "67", "68")

struct Types {
    const char* name;
    const char* accumulator;
    int bytes;  // of an operand's element; K of a dense wgmma is 32 bytes, of a dense mma.sync too
};
constexpr Types types_of(Kind kind) {
    return kind == Kind::bf16_f32    ? Types{"bf16", "fp32", 2}
           : kind == Kind::fp16_f32  ? Types{"fp16", "fp32", 2}
           : kind == Kind::fp16_fp16 ? Types{"fp16", "fp16", 2}
           : kind == Kind::tf32_f32  ? Types{"tf32", "fp32", 4}
           : kind == Kind::e4m3_f32  ? Types{"e4m3", "fp32", 1}
           : kind == Kind::e4m3_fp16 ? Types{"e4m3", "fp16", 1}
                                     : Types{"int8", "int32", 1};
}

enum class Source { ss, rs, sparse };

constexpr int kWarpgroups = 2;  // as a GEMM's two consumers: one issues while the other waits for its group
constexpr int kTileA = 64 * 128, kTileB = 256 * 128;  // rows of 128 bytes, 128B-swizzled

__global__ void to_e4m3(__nv_fp8_e4m3* out, const float* in, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        out[i] = __nv_fp8_e4m3(in[i]);
}

template <Kind T, int N, Source S>
__global__ void __launch_bounds__(128 * kWarpgroups, 1) wgmma_loop(const uint4* in, int rounds, Stamp* stamps) {
    extern __shared__ uint8_t raw[];
    uint8_t* tiles = raw + (1024 - hopper::address(raw) % 1024) % 1024;
    constexpr int kBytes = kTileA + kTileB;
    for (int i = threadIdx.x; i < kBytes / 16; i += blockDim.x) reinterpret_cast<uint4*>(tiles)[i] = in[i];
    hopper::shared_visible_to_async();
    __syncthreads();
    // Both warpgroups read one A: descriptors that are the same in all threads cost no move to uniform registers.
    const uint64_t a = hopper::descriptor_128(hopper::address(tiles));
    const uint64_t b = hopper::descriptor_128(hopper::address(tiles + kTileA));
    using Instruction = Mma<T, N, S == Source::sparse>;
    uint32_t d[Instruction::count], registers[4];
#pragma unroll
    for (int i = 0; i < Instruction::count; ++i) d[i] = 0;
    const uint4 mine = in[threadIdx.x];
    registers[0] = mine.x, registers[1] = mine.y, registers[2] = mine.z, registers[3] = mine.w;
    // Metadata: for each group of four the two kept, as two increasing 2-bit places; 8 groups a register. For tf32 (one of
    // two) a group is 4 bits too: 0100 or 1110.
    uint32_t meta = 0;
    for (int i = 0; i < 8; ++i) {
        uint32_t random = (mine.x >> (4 * i)) & 15;
        uint32_t place = T == Kind::tf32_f32 ? (random & 1 ? 0x4 : 0xe) : (0xedc984edc984edc9ull >> (4 * random)) & 15;
        meta |= place << (4 * i);
    }
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        hopper::wgmma_fence();
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            // Along K within the 128 bytes of a row: four dense steps, two sparse ones (whose a is half as wide).
            const int step = u % (S == Source::sparse ? 2 : 4);
            const uint64_t b_at = hopper::advance(b, step * (S == Source::sparse ? 64 : 32));
            if constexpr (S == Source::rs) Instruction::rs(d, registers, b_at);
            else Instruction::ss(d, hopper::advance(a, step * 32), b_at, meta);
        }
        hopper::wgmma_commit();
        hopper::wgmma_wait<0>();
    }
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < Instruction::count; ++i) {
        asm volatile("" : "+r"(d[i])::"memory");
        sum ^= d[i];
    }
    keep(sum, stamps);
    end(stamp, stamps);
}

template <Kind T, int N, Source S>
void wgmma(Bench& bench, const uint4* in) {
    constexpr Types types = types_of(T);
    constexpr int k = (S == Source::sparse ? 64 : 32) / types.bytes;
    // Half a millisecond: an instruction of the dense peak rate takes N / 2 cycles, and not less than about 16.
    const int rounds = 1000000 / (kWarpgroups * kUnroll * std::max(N / 2, 16));
    const int shared = kTileA + kTileB + 1024, blocks = bench.sms();
    CHECK_CUDA(cudaFuncSetAttribute(wgmma_loop<T, N, S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    const std::string key = std::string("tensor:") + (S == Source::sparse ? "sparse-wgmma:" : "wgmma:") + types.name + ":" +
                            types.accumulator + ":m64n" + std::to_string(N) + "k" + std::to_string(k) +
                            (S == Source::rs ? ":rs" : ":ss");
    rate(bench, key, "op/s", 2.0 * 64 * N * k * kUnroll * kWarpgroups * rounds * blocks, blocks, [&](Stamp* s) {
        wgmma_loop<T, N, S><<<blocks, 128 * kWarpgroups, shared>>>(in, rounds, s);
    });
}

template <Kind T, Source S>
void wgmma_shapes(Bench& bench, const uint4* in) {
    wgmma<T, 8, S>(bench, in);
    wgmma<T, 16, S>(bench, in);
    wgmma<T, 32, S>(bench, in);
    wgmma<T, 64, S>(bench, in);
    wgmma<T, 128, S>(bench, in);
    wgmma<T, 256, S>(bench, in);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    constexpr size_t kElements = kTileA + kTileB;  // of one byte each; of wider ones more than enough
    auto* bf16 = device_alloc<__nv_bfloat16>(kElements);
    auto* fp16 = device_alloc<__half>(kElements);
    auto* fp32 = device_alloc<float>(kElements);
    auto* bytes = device_alloc<uint8_t>(kElements);
    auto* e4m3 = device_alloc<__nv_fp8_e4m3>(kElements);
    fill_uniform(bf16, kElements, key, -1, 1);
    fill_uniform(fp16, kElements, key + 1, -1, 1);
    fill_uniform(fp32, kElements, key + 2, -1, 1);
    fill_uniform(bytes, kElements, key + 3, 0, 0);
    to_e4m3<<<256, 256>>>(e4m3, fp32, kElements);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    wake(bench, 100);
    auto words = [](const void* p) { return static_cast<const uint4*>(p); };
    wgmma_shapes<Kind::bf16_f32, Source::ss>(bench, words(bf16));
    wgmma_shapes<Kind::bf16_f32, Source::rs>(bench, words(bf16));
    wgmma_shapes<Kind::bf16_f32, Source::sparse>(bench, words(bf16));
    wgmma_shapes<Kind::fp16_f32, Source::ss>(bench, words(fp16));
    wgmma_shapes<Kind::fp16_f32, Source::rs>(bench, words(fp16));
    wgmma_shapes<Kind::fp16_fp16, Source::ss>(bench, words(fp16));
    wgmma_shapes<Kind::fp16_fp16, Source::rs>(bench, words(fp16));
    wgmma_shapes<Kind::tf32_f32, Source::ss>(bench, words(fp32));
    wgmma_shapes<Kind::tf32_f32, Source::rs>(bench, words(fp32));
    wgmma_shapes<Kind::tf32_f32, Source::sparse>(bench, words(fp32));
    wgmma_shapes<Kind::e4m3_f32, Source::ss>(bench, words(e4m3));
    wgmma_shapes<Kind::e4m3_f32, Source::rs>(bench, words(e4m3));
    wgmma_shapes<Kind::e4m3_f32, Source::sparse>(bench, words(e4m3));
    wgmma_shapes<Kind::e4m3_fp16, Source::ss>(bench, words(e4m3));
    wgmma_shapes<Kind::int8_int32, Source::ss>(bench, words(bytes));
    wgmma_shapes<Kind::int8_int32, Source::rs>(bench, words(bytes));
    wgmma_shapes<Kind::int8_int32, Source::sparse>(bench, words(bytes));
    return 0;
}
