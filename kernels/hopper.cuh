// The instructions of the Hopper path (sm_90a): mbarriers, the tensor copy engine (TMA), wgmma, register reallocation,
// clusters; on the host the tensor maps. Addresses of shared memory are the 32-bit ones of address().
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace hopper {

__device__ __forceinline__ uint32_t address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// --- mbarriers. A barrier starts in phase 0; wait(bar, p) returns once the phase of parity p is complete, so that a
// --- wait for parity 1 on a fresh barrier returns at once.

__device__ __forceinline__ void barrier_init(uint64_t* bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(arrivals) : "memory");
}
// After the inits and before the block's (or the cluster's) barrier: makes them visible to the copy engine and the peers.
__device__ __forceinline__ void barrier_init_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival, and `bytes` more that the copy engine must deliver in this phase.
__device__ __forceinline__ void barrier_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(bar)) : "memory");
}
// Arrives at the barrier that lies at the same place in block `rank` of the cluster (the own block too). It orders nothing
// across blocks: .release.cluster would put a fence of the whole GPU before every arrival, which a release of memory that was only
// read does not need.
__device__ __forceinline__ void barrier_arrive_at(uint64_t* bar, uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(address(bar)),
        "r"(rank)
        : "memory");
}
// Fails the launch after some seconds instead of hanging the GPU: a wrong phase or count then shows as an error.
__device__ __forceinline__ void barrier_wait(uint64_t* bar, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < (1 << 20); ++tries) {
        uint32_t done;
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(address(bar)), "r"(parity)
            : "memory");
        if (done) return;
    }
    __trap();
}

// --- TMA. The tensor map is a __grid_constant__ parameter; x is the element in a row, y the row.

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(address(bar)), "r"(x), "r"(y)
                 : "memory");
}
// To the same place in every block of the cluster whose bit is set in `blocks`; each block's barrier gets its bytes.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y,
                                                   uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(address(bar)), "r"(x), "r"(y), "h"(blocks)
                 : "memory");
}
// The same for tensors of four dimensions (w, z, y, x from the slowest to the fastest).
__device__ __forceinline__ void tma_load_4d(uint32_t to, const CUtensorMap* map, uint64_t* bar, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(address(bar)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
// Consecutive bytes, a multiple of 16.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(address(bar))
                 : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
                 "r"(x), "r"(y)
                 : "memory");
}
__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, uint32_t from, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last `Pending` groups of this thread have been read out of shared memory.
template <int Pending>
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// In each thread that wrote shared memory by ordinary stores (cp.async and stmatrix too), before the barrier after which
// wgmma or the copy engine reads it.
__device__ __forceinline__ void shared_visible_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- Threads. Named barriers are 1 to 15; 0 is __syncthreads().

__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// By all warps of a warpgroup; the kernel needs __launch_bounds__(threads, 1). A multiple of 8 from 24 to 240.
template <int Registers>
__device__ __forceinline__ void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Every thread of every block of the cluster. Without .aligned: lanes may come at different times.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// --- wgmma

enum class Swizzle { none = 0, b128 = 1, b64 = 2, b32 = 3 };  // the values of a descriptor's bits 62 and 63

constexpr int swizzle_bytes(Swizzle s) { return s == Swizzle::b128 ? 128 : s == Swizzle::b64 ? 64 : s == Swizzle::b32 ? 32 : 16; }

// A matrix descriptor: start, "leading" and "stride" distance in units of 16 bytes (PTX ISA, matrix descriptor format).
// K-major (rows of K): swizzled, rows are swizzle_bytes wide, stride is the distance of groups of eight rows
// (8 * swizzle_bytes where rows are dense), leading is not used; unswizzled, the operand is made of 8 x 16-byte core matrices,
// leading their distance along K and stride along the rows. The tile starts at a multiple of 8 * swizzle_bytes (1024
// for 128); inside it, start may move along K within the row by whole multiples of 32 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t start, uint32_t leading_bytes, uint32_t stride_bytes, Swizzle swizzle) {
    return uint64_t((start & 0x3ffffu) >> 4) | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32 |
           uint64_t(swizzle) << 62;
}
// K-major rows of 128 bytes, as a 128B-swizzled TMA box leaves them.
__device__ __forceinline__ uint64_t descriptor_128(uint32_t start) { return descriptor(start, 16, 1024, Swizzle::b128); }
// A descriptor `bytes` further on (a multiple of 16).
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Keeps the compiler from moving the use of registers across a wait: it does not know that wgmma writes them later.
template <int Count>
__device__ __forceinline__ void pin(float (&d)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

enum class Type { bf16, e4m3, tf32 };

// d (64 x N, FP32) = a * b^T (+ d where `add`). Thread t of the warpgroup holds rows 16 * (t / 32) + t % 32 / 4 (and + 8) and columns
// 8 * j + 2 * (t % 4) (and + 1): d[4 * j], d[4 * j + 1], then row + 8: d[4 * j + 2], d[4 * j + 3].
// K is 32 bytes: 16 bf16, 32 e4m3, 8 tf32. ss(): a by descriptor. rs(): a in registers, as mma.sync's a operand of 16 rows a warp.
// TransposedB (bf16 only): b's descriptor describes an N-major matrix.
template <Type T, int N, bool TransposedB = false>
struct Wgmma;

#define HOPPER_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HOPPER_D16(i) HOPPER_D4(i), HOPPER_D4(i + 4), HOPPER_D4(i + 8), HOPPER_D4(i + 12)
#define HOPPER_D32(i) HOPPER_D16(i), HOPPER_D16(i + 16)
#define HOPPER_D64(i) HOPPER_D32(i), HOPPER_D32(i + 32)
#define HOPPER_D96(i) HOPPER_D64(i), HOPPER_D32(i + 64)
#define HOPPER_D128(i) HOPPER_D64(i), HOPPER_D64(i + 64)
#define HOPPER_R32                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
    "%25, %26, %27, %28, %29, %30, %31"
#define HOPPER_R64                                                                                                        \
    HOPPER_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
               "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HOPPER_R96                                                                                                        \
    HOPPER_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
               "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HOPPER_R128                                                                                                        \
    HOPPER_R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
               "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// COUNT is N / 2; P0 to P5 are COUNT, COUNT + 1 ... as texts; SS_TAIL and RS_TAIL the transposition flags of bf16.
#define HOPPER_WGMMA(TYPE, N_, TRANSPOSED, COUNT, NAME, P0, P1, P2, P3, P4, P5, SS_TAIL, RS_TAIL)                            \
    template <>                                                                                                              \
    struct Wgmma<TYPE, N_, TRANSPOSED> {                                                                                     \
        static __device__ __forceinline__ void ss(float (&d)[COUNT], uint64_t a, uint64_t b, int add) {                      \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P2 ", 0;\nwgmma.mma_async.sync.aligned." NAME " {" HOPPER_R##COUNT \
                         "}, %" P0 ", %" P1 ", p, 1, 1" SS_TAIL ";\n}"                                                       \
                         : HOPPER_D##COUNT(0)                                                                                \
                         : "l"(a), "l"(b), "r"(add));                                                                        \
        }                                                                                                                    \
        static __device__ __forceinline__ void rs(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, int add) {          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" P5 ", 0;\nwgmma.mma_async.sync.aligned." NAME " {" HOPPER_R##COUNT \
                         "}, {%" P0 ", %" P1 ", %" P2 ", %" P3 "}, %" P4 ", p, 1, 1" RS_TAIL ";\n}"                          \
                         : HOPPER_D##COUNT(0)                                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                    \
        }                                                                                                                    \
    };
#define HOPPER_WGMMA_TYPES(N_, COUNT, P0, P1, P2, P3, P4, P5)                                                                        \
    HOPPER_WGMMA(Type::bf16, N_, false, COUNT, "m64n" #N_ "k16.f32.bf16.bf16", P0, P1, P2, P3, P4, P5, ", 0, 0", ", 0")              \
    HOPPER_WGMMA(Type::bf16, N_, true, COUNT, "m64n" #N_ "k16.f32.bf16.bf16", P0, P1, P2, P3, P4, P5, ", 0, 1", ", 1")               \
    HOPPER_WGMMA(Type::e4m3, N_, false, COUNT, "m64n" #N_ "k32.f32.e4m3.e4m3", P0, P1, P2, P3, P4, P5, "", "")                       \
    HOPPER_WGMMA(Type::tf32, N_, false, COUNT, "m64n" #N_ "k8.f32.tf32.tf32", P0, P1, P2, P3, P4, P5, "", "")
HOPPER_WGMMA_TYPES(64, 32, "32", "33", "34", "35", "36", "37")
HOPPER_WGMMA_TYPES(128, 64, "64", "65", "66", "67", "68", "69")
HOPPER_WGMMA_TYPES(192, 96, "96", "97", "98", "99", "100", "101")
HOPPER_WGMMA_TYPES(256, 128, "128", "129", "130", "131", "132", "133")
#undef HOPPER_WGMMA_TYPES
#undef HOPPER_WGMMA

// d (64 x 256, FP32) = a * b^T (+ d where `add`) over 32 of K, bf16, a with two zeros or more in every four along K. a's descriptor is
// that of the 16 elements a row that are kept, as of a dense step of 16; b's K is 64 bytes. `metadata` of thread t holds, 4 bits every
// four elements, the places of the kept two (the lower first): of k 16 * (t % 2) to + 15, row 16 * (t / 32) + t % 32 / 4 in bits 0 to
// 15, row + 8 in bits 16 to 31. Selector 0 takes it from the threads of t % 4 < 2, 1 from the others (PTX ISA, sparse wgmma;
// tests/gpu/sparse_probe.cu reads it off a GPU). wgmma reads the register while it runs: it must not change before wgmma_wait.
template <int Selector>
__device__ __forceinline__ void wgmma_sparse(float (&d)[128], uint64_t a, uint64_t b, uint32_t metadata, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %131, 0;\nwgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16 {" HOPPER_R128
                 "}, %128, %129, %130, %132, p, 1, 1, 0, 0;\n}"
                 : HOPPER_D128(0)
                 : "l"(a), "l"(b), "r"(metadata), "r"(add), "n"(Selector));
}

// Four 8 x 8 matrices of b16 to shared memory; lanes 8i to 8i+7 give the row addresses of matrix i.
__device__ __forceinline__ void stmatrix(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}

// --- host

inline void driver_error(const char* what, int status) {
    std::fprintf(stderr, "error: %s failed with status %d\n", what, status);
    std::exit(1);
}

// A tensor map of up to five dimensions: sizes and box in elements, the fastest first; strides in bytes, of the dimensions after
// the first. Elements out of bounds read as zero and are not written. `l2`: what a miss brings into L2 around what is asked for.
inline CUtensorMap tensor_map(CUtensorMapDataType type, const void* data, int rank, const uint64_t* sizes,
                              const uint64_t* strides, const uint32_t* box, Swizzle swizzle,
                              CUtensorMapL2promotion l2 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
    using Encode = decltype(&cuTensorMapEncodeTiled);
    static Encode encode = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
        if (status != cudaSuccess || result != cudaDriverEntryPointSuccess)
            driver_error("finding cuTensorMapEncodeTiled in the driver", int(status));
        return reinterpret_cast<Encode>(found);
    }();
    const uint32_t ones[5] = {1, 1, 1, 1, 1};
    CUtensorMapSwizzle mode = swizzle == Swizzle::b128  ? CU_TENSOR_MAP_SWIZZLE_128B
                              : swizzle == Swizzle::b64 ? CU_TENSOR_MAP_SWIZZLE_64B
                              : swizzle == Swizzle::b32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                        : CU_TENSOR_MAP_SWIZZLE_NONE;
    CUtensorMap map;
    CUresult status = encode(&map, type, cuuint32_t(rank), const_cast<void*>(data), sizes, strides, box, ones,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, mode, l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS) driver_error("cuTensorMapEncodeTiled", int(status));
    return map;
}
// A dense row-major matrix of `rows` x `columns`; the box's row is at most the swizzle's bytes.
inline CUtensorMap matrix_map(CUtensorMapDataType type, int element_bytes, const void* data, uint64_t rows, uint64_t columns,
                              uint32_t box_rows, uint32_t box_columns, Swizzle swizzle,
                              CUtensorMapL2promotion l2 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
    const uint64_t sizes[] = {columns, rows}, strides[] = {columns * element_bytes};
    const uint32_t box[] = {box_columns, box_rows};
    return tensor_map(type, data, 2, sizes, strides, box, swizzle, l2);
}

}  // namespace hopper
