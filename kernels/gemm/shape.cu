// One GEMM whose tile has its three sides as arguments, for ablations: C (m x n, bf16) = A (m x k) * B^T, B as n x k, FP32
// accumulators. A consumer warpgroup has 64 rows of the tile; one more warp copies.
// diagnose: expect tensor-compute
//
// --tile_m 64|128|192|256 (as many warpgroups as 64 rows; up to 128 with --tile_n 256, up to 192 with --tile_n 128 --rs 1: registers)
// --tile_n 64|128|256   --tile_k 64|128|256 (bytes of K in a stage: 128 are 64 of bf16)   --stages 2..8
// --rs 0|1 (A of the product from registers)   --bits 8|16|32 (e4m3, bf16, tf32)
#include "../hopper.cuh"
#include "../mma.cuh"
#include "check.cuh"
#include "convert.cuh"

using hopper::Swizzle;
using hopper::Type;
using bf16 = __nv_bfloat16;

constexpr int kGroupRows = 64;
constexpr int kSharedLimit = 227 * 1024;     // of a block on sm_90

template <Type T>
constexpr int kElementBytes = T == Type::e4m3 ? 1 : T == Type::bf16 ? 2 : 4;
template <int N, bool Rs>
constexpr int kMostGroups = N == 256 ? 2 : N == 128 && Rs ? 3 : 4;
// The copying warp; with the sums of 256 columns a whole warpgroup, which gives its registers away.
template <int N>
constexpr int kProducers = N == 256 ? 128 : 32;
template <int N, bool Rs>
constexpr int kMostThreads = kMostGroups<N, Rs> * 128 + kProducers<N>;

// A stage's operand of `rows` rows lies in chunks of as many bytes of K as a row of shared memory has: [TileK / kWidth][rows][kWidth].
template <int TileK>
struct Operand {
    static constexpr int kWidth = TileK < 128 ? TileK : 128;
    static constexpr Swizzle kSwizzle = kWidth == 128 ? Swizzle::b128 : Swizzle::b64;
    uint32_t start, rows;
    // Byte `x` of K in row `row`, before the swizzle.
    __device__ __forceinline__ uint32_t offset(int row, int x) const { return (x / kWidth * rows + row) * kWidth + x % kWidth; }
    __device__ __forceinline__ uint64_t descriptor(int row, int x) const {
        return hopper::descriptor(start + offset(row, x), 16, 8 * kWidth, kSwizzle);
    }
    // The address of 16 bytes: the swizzle exchanges 16-byte pieces of a row by the address bits from 7 on.
    __device__ __forceinline__ uint32_t piece(int row, int x) const {
        uint32_t at = offset(row, x);
        return start + (at ^ ((at >> 7 & (kWidth / 16 - 1)) << 4));
    }
};

template <Type T, int N, int TileK, bool Rs>
__global__ void __launch_bounds__(kMostThreads<N, Rs>, 1)
    gemm_shape(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* __restrict__ c, int n,
               int steps, int stages) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using Tile = Operand<TileK>;
    const int groups = (blockDim.x - kProducers<N>) / 128, tile_m = groups * kGroupRows;
    const uint32_t bytes_a = tile_m * TileK, bytes_b = N * TileK, stage_bytes = bytes_a + bytes_b;
    uint32_t base = hopper::address(shared);
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + stages * stage_bytes);
    uint64_t* empty = full + stages;
    int thread = threadIdx.x % 128, group = threadIdx.x / 128, lane = thread % 32;
    int m0 = blockIdx.x * tile_m, n0 = blockIdx.y * N;

    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i) hopper::barrier_init(&full[i], 1), hopper::barrier_init(&empty[i], groups);
        hopper::barrier_init_visible();
    }
    __syncthreads();

    if (group == groups) {
        if constexpr (N == 256) hopper::registers_give<40>();
        if (thread == 0) {
            int slot = 0;
            uint32_t phase = 1;
            for (int step = 0; step < steps; ++step) {
                hopper::barrier_wait(&empty[slot], phase);
                hopper::barrier_expect(&full[slot], stage_bytes);
                uint32_t to = base + slot * stage_bytes;
                for (int x = 0; x < TileK; x += Tile::kWidth) {
                    int column = (step * TileK + x) / kElementBytes<T>;
                    hopper::tma_load(to + x * tile_m, &map_a, &full[slot], column, m0);
                    hopper::tma_load(to + bytes_a + x * N, &map_b, &full[slot], column, n0);
                }
                if (++slot == stages) slot = 0, phase ^= 1;
            }
        }
    } else {
        if constexpr (N == 256) hopper::registers_take<232>();
        float sum[N / 2];
        int slot = 0, previous = 0;
        uint32_t phase = 0;
        for (int step = 0; step < steps; ++step) {
            hopper::barrier_wait(&full[slot], phase);
            const uint32_t stage = base + slot * stage_bytes;
            const Tile left{stage, uint32_t(tile_m)}, right{stage + bytes_a, N};
            if constexpr (Rs) {
                // The fragments must stay until the products have read them: a few steps at a time, the other warpgroups fill in.
                constexpr int kSteps = Tile::kWidth / 32;
                int row = group * kGroupRows + thread / 32 * 16 + lane % 16;
                for (int x = 0; x < TileK; x += Tile::kWidth) {
                    uint32_t fragment[kSteps][4];
#pragma unroll
                    for (int j = 0; j < kSteps; ++j) ldmatrix(fragment[j], left.piece(row, x + j * 32 + lane / 16 * 16));
                    hopper::wgmma_fence();
#pragma unroll
                    for (int j = 0; j < kSteps; ++j)
                        hopper::Wgmma<T, N>::rs(sum, fragment[j], right.descriptor(0, x + j * 32), step | x | j);
                    hopper::wgmma_commit();
                    hopper::wgmma_wait<0>();
                }
                if (thread == 0) hopper::barrier_arrive(&empty[slot]);
            } else {
                hopper::wgmma_fence();
#pragma unroll
                for (int x = 0; x < TileK; x += 32)
                    hopper::Wgmma<T, N>::ss(sum, left.descriptor(group * kGroupRows, x), right.descriptor(0, x), step | x);
                hopper::wgmma_commit();
                hopper::wgmma_wait<1>();
                if (thread == 0 && step > 0) hopper::barrier_arrive(&empty[previous]);
            }
            previous = slot;
            if (++slot == stages) slot = 0, phase ^= 1;
        }
        hopper::wgmma_wait<0>();
        hopper::pin(sum);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            bf16* row = c + size_t(m0 + group * kGroupRows + thread / 32 * 16 + h * 8 + lane / 4) * n + n0;
#pragma unroll
            for (int j = 0; j < N / 8; j += 2)
                store_row_16(row + j * 8, pack_bf16(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]),
                             pack_bf16(sum[4 * j + 4 + 2 * h], sum[4 * j + 5 + 2 * h]), lane);
        }
    }
}

struct Request {
    int m, n, k, tile_m, stages, runs;
    unsigned long long key;
};

template <Type T, int N, int TileK, bool Rs>
int run(const Request& r, double tolerance) {
    using Element = std::conditional_t<T == Type::e4m3, __nv_fp8_e4m3, std::conditional_t<T == Type::bf16, bf16, float>>;
    using Tile = Operand<TileK>;
    constexpr int element = kElementBytes<T>, depth = TileK / element, most = kMostGroups<N, Rs>;
    const int groups = r.tile_m / kGroupRows;
    require(groups <= most, "--tile_m must be at most " + std::to_string(most * kGroupRows) + " with --tile_n " + std::to_string(N) +
                                (Rs ? " and --rs 1" : ""));
    require(r.m % r.tile_m == 0 && r.n % N == 0 && r.k % depth == 0,
            "--m, --n, --k must be multiples of " + std::to_string(r.tile_m) + ", " + std::to_string(N) + ", " + std::to_string(depth) +
                " for this tile");
    const int bytes = r.stages * ((r.tile_m + N) * TileK + 2 * int(sizeof(uint64_t)));
    require(bytes <= kSharedLimit, "--stages " + std::to_string(r.stages) + " of this tile need " + std::to_string(bytes) +
                                       " bytes of shared memory, a block has " + std::to_string(kSharedLimit));

    auto* a = device_alloc<Element>(size_t(r.m) * r.k);
    auto* b = device_alloc<Element>(size_t(r.n) * r.k);
    auto* c = device_alloc<bf16>(size_t(r.m) * r.n);
    fill_operand(a, size_t(r.m) * r.k, r.key);
    fill_operand(b, size_t(r.n) * r.k, r.key + 1);
    poison(c, size_t(r.m) * r.n * sizeof(bf16));

    constexpr CUtensorMapDataType type = T == Type::e4m3   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                         : T == Type::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    CUtensorMap map_a = hopper::matrix_map(type, element, a, r.m, r.k, r.tile_m, Tile::kWidth / element, Tile::kSwizzle);
    CUtensorMap map_b = hopper::matrix_map(type, element, b, r.n, r.k, N, Tile::kWidth / element, Tile::kSwizzle);
    auto kernel = gemm_shape<T, N, TileK, Rs>;
    const int threads = groups * 128 + kProducers<N>;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int resident = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, bytes));
    std::printf("blocks an SM: %d\n", resident);
    auto launch = [&] {
        kernel<<<dim3(r.m / r.tile_m, r.n / N), threads, bytes>>>(map_a, map_b, c, r.n, r.k / depth, r.stages);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error<true>(a, b, c, r.m, r.n, r.k, r.key + 2);
    double traffic = double(element) * (double(r.m) * r.k + double(r.n) * r.k) + 2.0 * r.m * r.n;
    return report("gemm/shape", median_us(launch, r.runs), 2.0 * r.m * r.n * r.k, traffic, error, tolerance);
}

template <Type T, int N>
int choose(const Request& r, int tile_k, bool rs, double tolerance) {
    if (tile_k == 64) return rs ? run<T, N, 64, true>(r, tolerance) : run<T, N, 64, false>(r, tolerance);
    if (tile_k == 128) return rs ? run<T, N, 128, true>(r, tolerance) : run<T, N, 128, false>(r, tolerance);
    return rs ? run<T, N, 256, true>(r, tolerance) : run<T, N, 256, false>(r, tolerance);
}

template <Type T>
int choose(const Request& r, int tile_n, int tile_k, bool rs, double tolerance) {
    if (tile_n == 64) return choose<T, 64>(r, tile_k, rs, tolerance);
    if (tile_n == 128) return choose<T, 128>(r, tile_k, rs, tolerance);
    return choose<T, 256>(r, tile_k, rs, tolerance);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto one_of = [&](const char* name, int def, std::initializer_list<int> allowed) {
        long long value = args.get(name, def);
        std::string list;
        for (int one : allowed) {
            if (value == one) return int(value);
            list += (list.empty() ? "" : ", ") + std::to_string(one);
        }
        require(false, "--" + std::string(name) + " must be one of " + list + ", got " + std::to_string(value));
        return 0;
    };
    GemmShape shape(args, 8192);
    int tile_m = one_of("tile_m", 128, {64, 128, 192, 256}), tile_n = one_of("tile_n", 256, {64, 128, 256});
    int tile_k = one_of("tile_k", 128, {64, 128, 256}), stages = one_of("stages", 4, {2, 3, 4, 5, 6, 7, 8});
    int bits = one_of("bits", 16, {8, 16, 32}), rs = one_of("rs", 0, {0, 1});
    Request r{shape.m, shape.n, shape.k, tile_m, stages, repeats(args), seed(args)};
    args.done();
    if (bits == 8) return choose<Type::e4m3>(r, tile_n, tile_k, rs, kToleranceE4m3);
    if (bits == 32) return choose<Type::tf32>(r, tile_n, tile_k, rs, kToleranceTf32);
    return choose<Type::bf16>(r, tile_n, tile_k, rs, kToleranceBf16);
}
