// bf16 GEMM with a 2:4 sparse A: two of four neighbours along K are zero, only the others are stored and multiplied, at up to twice
// the rate. The program prunes a random A to the larger two of each four; the rest is the persistent step of the ladder.
// diagnose: expect tensor-compute
//
// --dense 0|1: 1 multiplies the same pruned A with its zeros, all else equal. FLOPs are those of the dense product either way.
#include "tiles.cuh"

constexpr int kCluster = 2;

// A stage holds 64 of K: A, B, and for a sparse A one word of metadata a consumer thread.
template <bool Sparse>
struct Stage {
    static constexpr int row_a = Sparse ? 64 : 128, a = kM * row_a, meta = Sparse ? 128 * kConsumers * 4 : 0;
    static constexpr int bytes = a + kBytesB + meta, count = Sparse ? 5 : 4, buffers = Sparse ? 1 : 2;  // as many as fit
    static constexpr int out = count * bytes, barriers = out + kConsumers * buffers * kChunkBytes;
    static constexpr int shared = barriers + 2 * count * int(sizeof(uint64_t));
};

// A consumer warpgroup's sparse product over `steps` stages, an even number. A product stays in flight while the next is issued,
// and its word of metadata with it: the compiler does not know that wgmma still reads the register, so that two take turns and each
// is used once more when its product is done. A K step of the instruction is 32: 32 bytes of A's rows, 64 of B's.
template <class Ring>
__device__ __forceinline__ void multiply_sparse(Ring& ring, float (&sum)[kN / 2], int steps, int group, int thread) {
    using S = Stage<true>;
    uint32_t even = 0, odd = 0, used = 0;
    int previous = 0;
    auto multiply = [&](uint32_t& meta, uint32_t before, int step) {
        uint32_t stage = ring.stage();
        hopper::barrier_wait(&ring.full[ring.slot], ring.phase);
        uint64_t a = hopper::descriptor(stage + group * 64 * S::row_a, 16, 8 * S::row_a, hopper::Swizzle::b64);
        uint64_t b = hopper::descriptor_128(stage + S::a);
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(meta) : "r"(stage + S::a + kBytesB + (group * 128 + thread) * 4) : "memory");
        hopper::wgmma_fence();
        hopper::wgmma_sparse<0>(sum, a, b, meta, step);
        hopper::wgmma_sparse<1>(sum, hopper::advance(a, 32), hopper::advance(b, 64), meta, 1);
        hopper::wgmma_commit();
        hopper::wgmma_wait<1>();
        asm volatile("xor.b32 %0, %0, %1;" : "+r"(used) : "r"(before));
        if (step > 0) ring.release(previous, thread);
        previous = ring.slot;
        ring.next();
    };
    for (int step = 0; step < steps; step += 2) {
        multiply(even, odd, step);
        multiply(odd, even, step + 1);
    }
    hopper::wgmma_wait<0>();
    hopper::pin(sum);
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(used) : "r"(odd));
    if (used == 0x9e3779b9u && steps < 0) __trap();  // never; without a reader those uses would go
    ring.release(previous, thread);
}

template <bool Sparse>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_sparse(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, const uint32_t* __restrict__ meta, Order order, int k) {
    using S = Stage<Sparse>;
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<S::count, kCluster, S::bytes> ring(shared, S::barriers);
    int thread = threadIdx.x % 128, steps = k / kK, rank = hopper::cluster_rank();
    int tiles = order.rows * order.columns, clusters = gridDim.x / kCluster;
    if (threadIdx.x == 0) ring.init();
    hopper::cluster_sync();  // the peers' copies count on this block's barriers

    if (threadIdx.x < 128) {
        hopper::registers_give<kProducerRegisters>();
        if (thread == 0) {
            for (int tile = blockIdx.x / kCluster; tile < tiles; tile += clusters) {
                int row, column;
                order.place(tile, row, column);
                int m0 = (row * kCluster + rank) * kM, n0 = column * kN + rank * (kN / kCluster);
                for (int step = 0; step < steps; ++step) {
                    uint64_t* full = &ring.full[ring.slot];
                    hopper::barrier_wait(&ring.empty[ring.slot], ring.phase ^ 1);
                    hopper::barrier_expect(full, S::bytes);
                    hopper::tma_load(ring.stage(), &map_a, full, step * (S::row_a / 2), m0);
                    hopper::tma_load_multicast(ring.stage() + S::a + rank * (kBytesB / kCluster), &map_b, full, step * kK, n0,
                                               (1 << kCluster) - 1);
                    if constexpr (Sparse)
                        hopper::bulk_load(ring.stage() + S::a + kBytesB, meta + (size_t(m0 / kM) * steps + step) * (S::meta / 4),
                                          S::meta, full);
                    ring.next();
                }
            }
        }
    } else {
        hopper::registers_take<kConsumerRegisters>();
        int group = threadIdx.x / 128 - 1;
        uint32_t buffers = ring.stages + S::out + group * S::buffers * kChunkBytes;
        for (int tile = blockIdx.x / kCluster; tile < tiles; tile += clusters) {
            int row, column;
            order.place(tile, row, column);
            float sum[kN / 2];
            if constexpr (Sparse) {
                multiply_sparse(ring, sum, steps, group, thread);
            } else {
                diagnose_timeline::Track none;
                ring.multiply(sum, steps, group, thread, none);
            }
            store_by_tma<S::buffers>(sum, buffers, &map_c, column * kN, (row * kCluster + rank) * kM + group * 64, group, thread);
        }
        if (thread == 0) hopper::tma_store_wait<0>();
    }
    hopper::cluster_sync();  // the peers may still copy into this block and signal its barriers
}

// 16 elements of a row of A a thread: zeroes the smaller two of each four, packs the others, and puts their places where
// wgmma_sparse's threads find them: [m / 128][k / 64][256 consumer threads][2 rows, 8 apart].
__global__ void diagnose_prune(bf16* __restrict__ a, bf16* __restrict__ packed, uint16_t* __restrict__ meta, size_t count, int k) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int row = int(i / (k / 16)), block = int(i % (k / 16));
    uint32_t places = 0;
    for (int quad = 0; quad < 4; ++quad) {
        bf16* four = a + i * 16 + quad * 4;
        int kept = 0;
        for (int x = 0; x < 4; ++x) {
            int larger = 0;  // how many of the others go first
            for (int y = 0; y < 4; ++y) {
                float own = fabsf(float(four[x])), other = fabsf(float(four[y]));
                larger += other > own || (other == own && y < x);
            }
            if (larger < 2) kept |= 1 << x;
        }
        int at = 0;
        for (int x = 0; x < 4; ++x) {
            if (kept >> x & 1) {
                packed[i * 8 + quad * 2 + at] = four[x];
                places |= x << (quad * 4 + at * 2);
                ++at;
            } else {
                four[x] = bf16(0.f);
            }
        }
    }
    int thread = row % kM / 64 * 128 + row % 64 / 16 * 32 + row % 8 * 4 + block % 4;
    meta[((size_t(row / kM) * (k / kK) + block / 4) * 256 + thread) * 2 + row % 16 / 8] = uint16_t(places);
}

template <bool Sparse>
auto prepare(const Operands& o, int band) {
    using S = Stage<Sparse>;
    auto kernel = gemm_sparse<Sparse>;
    size_t blocks = size_t(o.m) * o.k / 16;
    bf16* packed = device_alloc<bf16>(blocks * 8);
    auto* meta = device_alloc<uint32_t>(blocks / 2);
    diagnose_prune<<<unsigned((blocks + 255) / 256), 256>>>(o.a, packed, reinterpret_cast<uint16_t*>(meta), blocks, o.k);
    CHECK_CUDA(cudaGetLastError());
    allow_shared(kernel, S::shared);
    CUtensorMap map_a = bf16_map(o.a, o.m, o.k, kM), map_b = bf16_map(o.b, o.n, o.k, kN / kCluster);
    if (Sparse)
        map_a = hopper::matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, packed, o.m, o.k / 2, kM, 32, hopper::Swizzle::b64);
    CUtensorMap map_c = bf16_map(o.c, o.m, o.n, 64);
    Order order{o.m / (kM * kCluster), o.n / kN, band};
    int multiprocessors = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    int grid = std::min(multiprocessors / kCluster, order.rows * order.columns) * kCluster, k = o.k;
    return [=] { kernel<<<grid, kThreads, S::shared>>>(map_a, map_b, map_c, meta, order, k); };
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    long long dense = args.get("dense", 0), band = args.get("band", 8);
    require(dense == 0 || dense == 1, "--dense must be 0 or 1");
    require(band > 0 && band <= 512, "--band must be between 1 and 512");
    require(args.get("k", 8192) % (2 * kK) == 0, "--k must be a multiple of 128");
    if (dense)
        return gemm_program("gemm/pruned-dense", args, kM * kCluster, [=](const Operands& o) { return prepare<false>(o, int(band)); });
    return gemm_program("gemm/sparse", args, kM * kCluster, [=](const Operands& o) { return prepare<true>(o, int(band)); });
}
