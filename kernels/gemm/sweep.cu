// One GEMM with the choices of the ladder as arguments, for ablations: C (m x n, bf16) = A (m x k) * B^T, B as n x k, FP32 accumulators.
// A block computes 128 x --tile outputs in two warpgroups; a stage holds 128 bytes of K.
// diagnose: expect tensor-compute
//
// --tile 64|128|256   --stages 2..7   --rs 0|1 (A of the product from registers)   --swizzle 0|32|64|128 (bytes)
// --cluster 1|2|4 (blocks that share a tile of B by multicast)   --producers 0|1|2 (warps that only copy; 0: a consumer thread copies,
// 2: one for A, one for B)   --bits 8|16|32 (e4m3, bf16, tf32)   --epilogue 0|1|2 (none; bias and GELU fused; in a kernel apart)
// --zeros 0|1 (operands of zeros instead of random ones)
#include "../hopper.cuh"
#include "../mma.cuh"
#include "check.cuh"
#include "convert.cuh"

using hopper::Swizzle;
using hopper::Type;
using bf16 = __nv_bfloat16;

constexpr int kM = 128, kRowBytes = 128, kConsumers = 2;
constexpr int kSharedLimit = 227 * 1024;  // of a block on sm_90

struct Choice {
    int stages, cluster, producers;
    int width, shift;  // bytes of K that lie together: the swizzle's, 16 without; width is 1 << shift
    Swizzle swizzle;
    const float* bias;  // null: plain product
};

template <Type T>
constexpr int kElementBytes = T == Type::e4m3 ? 1 : T == Type::bf16 ? 2 : 4;

// A stage's operand of `rows` rows lies in chunks of width bytes of K: [128 / width][rows][width].
struct Operand {
    uint32_t chunk;  // bytes of a chunk
    int width, shift;
    Swizzle swizzle;
    __device__ __forceinline__ Operand(int rows, const Choice& choice)
        : chunk(rows * choice.width), width(choice.width), shift(choice.shift), swizzle(choice.swizzle) {}
    // Byte `x` of K in row 0, before the swizzle.
    __device__ __forceinline__ uint32_t at(int x) const { return (x >> shift) * chunk + (x & (width - 1)); }
    // What wgmma reads in one step (32 bytes of K) from row `row` on, a multiple of 8.
    __device__ __forceinline__ uint64_t descriptor(uint32_t start, int row, int step) const {
        return hopper::descriptor(start + row * width + at(step * 32), chunk, 8 * width, swizzle);
    }
    // The address of 16 bytes: the swizzle exchanges 16-byte pieces of a row by the address bits from 7 on.
    __device__ __forceinline__ uint32_t piece(uint32_t start, int row, int x) const {
        uint32_t offset = at(x) + row * width;
        return start + (offset ^ ((offset >> 7 & (width / 16 - 1)) << 4));
    }
};

// N of 256 fills the registers: one block, and the producers' warpgroup gives its own away. Smaller tiles leave room for two blocks,
// except that fragments of A beside 64 sums do not fit 96 registers.
template <int N, bool Rs, bool Specialised>
constexpr int kBlocks = N == 256 || (N == 128 && Rs && Specialised) ? 1 : 2;
template <int N, bool Specialised>
constexpr int kThreads = N == 256 ? (Specialised ? 384 : 256) : (Specialised ? 320 : 256);

template <Type T, int N, bool Rs, bool Specialised>
__global__ void __launch_bounds__(kThreads<N, Specialised>, kBlocks<N, Rs, Specialised>)
    gemm_sweep(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* __restrict__ c,
               int n, int steps, Choice choice) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr uint32_t bytes_a = kM * kRowBytes, bytes_b = N * kRowBytes, stage_bytes = bytes_a + bytes_b;
    const int stages = choice.stages, cluster = choice.cluster;
    uint32_t base = hopper::address(shared);
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + stages * stage_bytes);
    uint64_t* empty = full + stages;
    int thread = threadIdx.x % 128, group = threadIdx.x / 128, warp = threadIdx.x / 32;
    int m0 = blockIdx.x * kM, n0 = blockIdx.y * N, rank = blockIdx.x % cluster;
    const Operand left(kM, choice), right(N, choice);

    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i) {
            hopper::barrier_init(&full[i], choice.producers == 2 ? 2 : 1);
            hopper::barrier_init(&empty[i], kConsumers * cluster);
        }
        hopper::barrier_init_visible();
    }
    hopper::cluster_sync();  // the peers' copies count on this block's barriers; a block alone is a cluster too

    // By one thread: the copies of one step's A or B or both. With a cluster each block copies its share of B into all.
    auto copy = [&](int step, int slot, bool a, bool b) {
        uint64_t* bar = &full[slot];
        uint32_t to = base + slot * stage_bytes;
        hopper::barrier_expect(bar, (a ? bytes_a : 0) + (b ? bytes_b : 0));
        constexpr int element = kElementBytes<T>;
        int share = N / cluster;
        for (int x = 0; x < kRowBytes; x += choice.width) {
            int column = (step * kRowBytes + x) / element;
            if (a) hopper::tma_load(to + left.at(x), &map_a, bar, column, m0);
            if (!b) continue;
            uint32_t to_b = to + bytes_a + right.at(x) + rank * share * choice.width;
            if (cluster == 1) hopper::tma_load(to_b, &map_b, bar, column, n0);
            else hopper::tma_load_multicast(to_b, &map_b, bar, column, n0 + rank * share, uint16_t((1 << cluster) - 1));
        }
    };

    if (Specialised && threadIdx.x >= kConsumers * 128) {
        if constexpr (N == 256) hopper::registers_give<40>();
        int producer = warp - kConsumers * 4;
        if (producer < choice.producers && thread % 32 == 0) {
            bool a = producer == 0, b = producer == 1 || choice.producers == 1;
            int slot = 0;
            uint32_t phase = 1;
            for (int step = 0; step < steps; ++step) {
                hopper::barrier_wait(&empty[slot], phase);
                copy(step, slot, a, b);
                if (++slot == stages) slot = 0, phase ^= 1;
            }
        }
    } else {
        if constexpr (Specialised && N == 256) hopper::registers_take<232>();
        if (!Specialised && threadIdx.x == 0)
            for (int step = 0; step < min(stages, steps); ++step) copy(step, step, true, true);
        __syncwarp();

        float sum[N / 2];
        // Gives a step's stage back; without a producer, thread 0 also waits for the others and copies the stage's next step.
        auto release = [&](int step, int slot, uint32_t phase) {
            if (cluster == 1) {
                if (thread == 0) hopper::barrier_arrive(&empty[slot]);
            } else {
                if (thread < cluster) hopper::barrier_arrive_at(&empty[slot], thread);
            }
            if constexpr (!Specialised) {
                if (threadIdx.x == 0 && step + stages < steps) {
                    hopper::barrier_wait(&empty[slot], phase);
                    copy(step + stages, slot, true, true);
                }
                __syncwarp();
            }
        };
        int slot = 0, previous = 0;
        uint32_t phase = 0, previous_phase = 0;
        for (int step = 0; step < steps; ++step) {
            hopper::barrier_wait(&full[slot], phase);
            uint32_t at = base + slot * stage_bytes;
            if constexpr (Rs) {
                // The fragments must stay until the products have read them: one stage at a time, the other warpgroup fills in.
                uint32_t fragment[4][4];
                int lane = thread % 32, row = group * 64 + thread / 32 * 16 + lane % 16;
#pragma unroll
                for (int j = 0; j < 4; ++j) ldmatrix(fragment[j], left.piece(at, row, j * 32 + lane / 16 * 16));
                hopper::wgmma_fence();
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    hopper::Wgmma<T, N>::rs(sum, fragment[j], right.descriptor(at + bytes_a, 0, j), step | j);
                hopper::wgmma_commit();
                hopper::wgmma_wait<0>();
                release(step, slot, phase);
            } else {
                hopper::wgmma_fence();
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    hopper::Wgmma<T, N>::ss(sum, left.descriptor(at, group * 64, j), right.descriptor(at + bytes_a, 0, j), step | j);
                hopper::wgmma_commit();
                hopper::wgmma_wait<1>();
                if (step > 0) release(step - 1, previous, previous_phase);
            }
            previous = slot, previous_phase = phase;
            if (++slot == stages) slot = 0, phase ^= 1;
        }
        hopper::wgmma_wait<0>();
        hopper::pin(sum);
        int lane = thread % 32;
        if (choice.bias) {
#pragma unroll
            for (int i = 0; i < N / 2; ++i) sum[i] = gelu(sum[i] + choice.bias[n0 + i / 4 * 8 + lane % 4 * 2 + i % 2]);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            bf16* row = c + size_t(m0 + group * 64 + thread / 32 * 16 + h * 8 + lane / 4) * n + n0;
#pragma unroll
            for (int j = 0; j < N / 8; j += 2)
                store_row_16(row + j * 8, pack_bf16(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]),
                             pack_bf16(sum[4 * j + 4 + 2 * h], sum[4 * j + 5 + 2 * h]), lane);
        }
    }
    hopper::cluster_sync();  // the peers may still copy into this block and signal its barriers
}

// The epilogue apart: C once more through memory. Eight values a thread.
__global__ void gemm_activation(bf16* c, const float* __restrict__ bias, int n, size_t count) {
    size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
    if (i >= count) return;
    uint4 packed = *reinterpret_cast<uint4*>(c + i);
    bf16* values = reinterpret_cast<bf16*>(&packed);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] = __float2bfloat16_rn(gelu(__bfloat162float(values[j]) + bias[i % n + j]));
    *reinterpret_cast<uint4*>(c + i) = packed;
}

struct Request {
    int m, n, k, stages, swizzle, cluster, producers, epilogue, zeros, runs;
    unsigned long long key;
};

template <Type T, int N, bool Rs, bool Specialised>
int run(const Request& r, double tolerance) {
    using Element = std::conditional_t<T == Type::e4m3, __nv_fp8_e4m3, std::conditional_t<T == Type::bf16, bf16, float>>;
    constexpr int element = kElementBytes<T>, depth = kRowBytes / element;
    require(r.m % (kM * r.cluster) == 0 && r.n % N == 0 && r.k % depth == 0,
            "--m, --n, --k must be multiples of " + std::to_string(kM * r.cluster) + ", " + std::to_string(N) + ", " +
                std::to_string(depth) + " for this choice");
    int bytes = r.stages * ((kM + N) * kRowBytes + 2 * int(sizeof(uint64_t)));
    require(bytes <= kSharedLimit, "--stages " + std::to_string(r.stages) + " of --tile " + std::to_string(N) + " need " +
                                       std::to_string(bytes) + " bytes of shared memory, a block has " + std::to_string(kSharedLimit));

    auto* a = device_alloc<Element>(size_t(r.m) * r.k);
    auto* b = device_alloc<Element>(size_t(r.n) * r.k);
    auto* c = device_alloc<bf16>(size_t(r.m) * r.n);
    float* bias = device_alloc<float>(r.n);
    fill_operand(a, size_t(r.m) * r.k, r.key);
    fill_operand(b, size_t(r.n) * r.k, r.key + 1);
    if (r.zeros) {  // nothing toggles in the multipliers, so that less power is drawn
        CHECK_CUDA(cudaMemset(a, 0, size_t(r.m) * r.k * sizeof(Element)));
        CHECK_CUDA(cudaMemset(b, 0, size_t(r.n) * r.k * sizeof(Element)));
    }
    fill_uniform(bias, r.n, r.key + 2, -8, 8);
    poison(c, size_t(r.m) * r.n * sizeof(bf16));

    Swizzle swizzle = r.swizzle == 128 ? Swizzle::b128 : r.swizzle == 64 ? Swizzle::b64 : Swizzle::b32;
    if (r.swizzle == 0) swizzle = Swizzle::none;
    int width = hopper::swizzle_bytes(swizzle), shift = 0;
    while (1 << shift < width) ++shift;
    Choice choice{r.stages, r.cluster, r.producers, width, shift, swizzle, r.epilogue == 1 ? bias : nullptr};
    CUtensorMapDataType type = T == Type::e4m3   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                               : T == Type::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    uint32_t box = choice.width / element;
    CUtensorMap map_a = hopper::matrix_map(type, element, a, r.m, r.k, kM, box, choice.swizzle);
    CUtensorMap map_b = hopper::matrix_map(type, element, b, r.n, r.k, N / r.cluster, box, choice.swizzle);

    auto kernel = gemm_sweep<T, N, Rs, Specialised>;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int threads = N == 256 ? kThreads<N, Specialised> : kConsumers * 128 + r.producers * 32, resident = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, bytes));
    std::printf("blocks an SM: %d\n", resident);
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = r.cluster, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(r.m / kM, r.n / N);
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.attrs = &cluster, config.numAttrs = 1;
    size_t count = size_t(r.m) * r.n;
    auto launch = [&] {
        CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, map_a, map_b, c, r.n, r.k / depth, choice));
        if (r.epilogue == 2) gemm_activation<<<unsigned((count + 2047) / 2048), 256>>>(c, bias, r.n, count);
    };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = gemm_error<true>(a, b, c, r.m, r.n, r.k, r.key + 3, r.epilogue ? bias : nullptr);
    double traffic = double(element) * (double(r.m) * r.k + double(r.n) * r.k) + 2.0 * r.m * r.n;
    return report("gemm/sweep", median_us(launch, r.runs), 2.0 * r.m * r.n * r.k, traffic, error, tolerance);
}

template <Type T, int N>
int choose(const Request& r, bool rs, double tolerance) {
    // Apart, the product is rounded to bf16 before the activation too.
    if (r.epilogue == 2) tolerance *= 1.5;
    if constexpr (T == Type::bf16)
        if (rs) return r.producers ? run<T, N, true, true>(r, tolerance) : run<T, N, true, false>(r, tolerance);
    return r.producers ? run<T, N, false, true>(r, tolerance) : run<T, N, false, false>(r, tolerance);
}

template <Type T>
int choose(const Request& r, long long tile, bool rs, double tolerance) {
    if (tile == 64) return choose<T, 64>(r, rs, tolerance);
    if (tile == 128) return choose<T, 128>(r, rs, tolerance);
    return choose<T, 256>(r, rs, tolerance);
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
    int tile = one_of("tile", 256, {64, 128, 256}), bits = one_of("bits", 16, {8, 16, 32}), rs = one_of("rs", 0, {0, 1});
    Request r{shape.m, shape.n, shape.k, one_of("stages", 4, {2, 3, 4, 5, 6, 7}), one_of("swizzle", 128, {0, 32, 64, 128}),
              one_of("cluster", 1, {1, 2, 4}), one_of("producers", 1, {0, 1, 2}), one_of("epilogue", 0, {0, 1, 2}), one_of("zeros", 0, {0, 1}),
              repeats(args), seed(args)};
    args.done();
    require(!rs || bits == 16, "--rs 1 goes with --bits 16 only");
    if (bits == 8) return choose<Type::e4m3>(r, tile, rs, kToleranceE4m3);
    if (bits == 32) return choose<Type::tf32>(r, tile, rs, kToleranceTf32);
    return choose<Type::bf16>(r, tile, rs, kToleranceBf16);
}
