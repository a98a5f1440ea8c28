// Dependent loads: how many cycles from the address to the value, by where the value lies; and by TMA, clusters, atomics.
// One thread of one warp runs, so that nothing else is in the way.
#include <numeric>

#include "../hopper.cuh"
#include "measure.cuh"

constexpr int kHops = 2048;

// A cycle through `slots` places `stride` bytes apart, in random order: no prefetch can follow it. Entry i of the result is the
// place that follows place i, in bytes.
std::vector<uint64_t> ring(size_t slots, size_t stride, unsigned long long key) {
    std::vector<uint32_t> order(slots);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937_64 random(key);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<uint64_t> next(slots);
    for (size_t i = 0; i < slots; ++i) next[order[i]] = uint64_t(order[(i + 1) % slots]) * stride;
    return next;
}

enum class Path { l1, l2, shared, own, remote };

// Memory holds addresses, not offsets: no addition stands between two loads.
template <Path P>
__device__ __forceinline__ uint64_t hop(uint64_t at) {
    uint64_t next;
    if constexpr (P == Path::l1) asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    else asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    return next;
}
template <Path P>
__device__ __forceinline__ uint32_t hop_shared(uint32_t at) {
    uint32_t next;
    if constexpr (P == Path::shared) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(next) : "r"(at) : "memory");
    else asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(next) : "r"(at) : "memory");
    return next;
}

// `warm` hops first (all of the ring where it shall be cached), then kHops timed ones.
template <Path P>
__global__ void chase(const uint8_t* base, int warm, Stamp* stamps) {
    uint64_t at = reinterpret_cast<uint64_t>(base);
#pragma unroll 1
    for (int i = 0; i < warm; ++i) at = hop<P>(at);
    Stamp stamp;
    begin(stamp);
#pragma unroll 16
    for (int i = 0; i < kHops; ++i) at = hop<P>(at);
    keep(uint32_t(at), stamps);
    end(stamp, stamps);
}

// Writes base + next[i] at base + i * stride.
__global__ void lay(uint8_t* base, const uint64_t* next, size_t slots, size_t stride) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < slots; i += size_t(gridDim.x) * blockDim.x)
        *reinterpret_cast<uint64_t*>(base + i * stride) = reinterpret_cast<uint64_t>(base) + next[i];
}

constexpr int kSharedWords = 1024;
// In shared memory, own or of block `peer` of the cluster. One block of the cluster chases; the others wait, or (`all`)
// chase too, each in its neighbour's memory.
template <Path P>
__global__ void chase_shared(const uint64_t* next, int blocks, int all, Stamp* stamps) {
    __shared__ uint32_t data[kSharedWords];
    const uint32_t rank = P == Path::shared ? 0 : hopper::cluster_rank();
    const uint32_t peer = P == Path::remote ? (rank + 1) % blocks : rank;
    uint32_t base = hopper::address(data), there = base;
    if constexpr (P != Path::shared) asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(base), "r"(peer));
    // Block `b`'s words hold addresses as its reader sees them: block b - 1 reads b, as all blocks of the cluster do alike.
    uint32_t seen = base;
    if constexpr (P != Path::shared) asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(seen) : "r"(base), "r"(rank));
    for (int i = 0; i < kSharedWords; ++i) data[i] = seen + uint32_t(next[i]);
    if constexpr (P != Path::shared) hopper::cluster_sync();
    Stamp stamp;
    begin(stamp);
    if (rank == 0 || all) {
        uint32_t at = there;
#pragma unroll 16
        for (int i = 0; i < kHops; ++i) at = hop_shared<P>(at);
        keep(at, stamps);
    }
    end(stamp, stamps);
    if constexpr (P != Path::shared) hopper::cluster_sync();  // nobody leaves while its memory is read
}

// Cycles of each line alone: 16 loads that wait for each other (each word holds its own address), out of L2.
__global__ void lines(const uint8_t* words, int count, int stride, uint32_t* cycles, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
#pragma unroll 1
    for (int line = 0; line < count; ++line) {
        uint64_t at = hop<Path::l2>(reinterpret_cast<uint64_t>(words) + size_t(line) * stride);
        at = hop<Path::l2>(at);
        if (at == 0) continue;  // never so: the clock is read once the warming loads are back, or their time would count
        unsigned long long start = now_cycles();
#pragma unroll
        for (int i = 0; i < 16; ++i) at = hop<Path::l2>(at);
        if (at) cycles[line] = uint32_t(now_cycles() - start);  // the test waits for the last load
    }
    end(stamp, stamps);
}

// A store, a fence so that it has reached L2, and a load of the same word past L1.
__global__ void round_trip(uint32_t* words, int count, Stamp* stamps) {
    Stamp stamp;
    uint32_t value = 1;
    begin(stamp);
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(words + i * 64), "r"(value) : "memory");
        __threadfence();
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(words + i * 64) : "memory");
        value += 1;
    }
    keep(value, stamps);
    end(stamp, stamps);
}

// An atomic whose old value is the next one's operand, at one word in L2. An exchange: of additions at one address the compiler
// first makes a sum over the warp, whose instructions would count.
__global__ void atomics(unsigned* word, Stamp* stamps) {
    Stamp stamp;
    unsigned value = 1;
    begin(stamp);
#pragma unroll 1
    for (int i = 0; i < kHops; ++i)
        asm volatile("atom.global.exch.b32 %0, [%1], %0;" : "+r"(value) : "l"(word) : "memory");
    keep(value, stamps);
    end(stamp, stamps);
}

// A copy of `rows` x 128 bytes by TMA with all that belongs to it (barrier, its visibility, the wait, the first read of the
// data), or one ordinary load of the same line and a store to shared memory.
__global__ void fetch(const __grid_constant__ CUtensorMap map, const uint32_t* in, int rows, int count, int first, int by_tma,
                      Stamp* stamps) {
    extern __shared__ uint8_t raw[];
    uint8_t* tile = raw + (1024 - hopper::address(raw) % 1024) % 1024;
    __shared__ uint64_t barrier;
    volatile uint32_t* tile_words = reinterpret_cast<uint32_t*>(tile);
    hopper::tma_prefetch_map(&map);
    Stamp stamp;
    begin(stamp);
    uint32_t sum = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        int row = first + (i * 17 % count) * 256 + (sum == 0x12345u);  // waits for the last value
        if (by_tma) {
            hopper::barrier_init(&barrier, 1);
            hopper::barrier_init_visible();
            hopper::shared_visible_to_async();
            hopper::barrier_expect(&barrier, rows * 128);
            hopper::tma_load(hopper::address(tile), &map, &barrier, 0, row);
            hopper::barrier_wait(&barrier, 0);
            sum += tile_words[0];
            asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(hopper::address(&barrier)) : "memory");
        } else {
            uint32_t value;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(in + size_t(row) * 32) : "memory");
            tile_words[0] = value;
            sum += tile_words[0];
        }
    }
    keep(sum, stamps);
    end(stamp, stamps);
}

// The bandwidth of reads out of other blocks' shared memory: ring (the next block), pair (the other of two), broadcast
// (all read block 0).
constexpr int kDsmThreads = 512, kDsmChunks = 4, kDsmWords = (kDsmChunks + 1) * kDsmThreads;  // 16-byte words: 40 KiB
__global__ void __launch_bounds__(kDsmThreads) dsm_read(const uint4* in, int blocks, int pattern, int passes, Stamp* stamps) {
    __shared__ uint4 data[kDsmWords];
    for (int i = threadIdx.x; i < kDsmWords; i += kDsmThreads) data[i] = in[i];
    uint32_t rank = hopper::cluster_rank(), peer = pattern == 0 ? (rank + 1) % blocks : pattern == 1 ? rank ^ 1 : 0, there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(hopper::address(data + threadIdx.x)), "r"(peer));
    hopper::cluster_sync();
    Stamp stamp;
    begin(stamp);
    uint32_t sum = 0;
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
        const uint32_t at = there + (pass & 1) * kDsmThreads * 16;  // no load is the same in the next pass
        uint4 v[kDsmChunks];
#pragma unroll
        for (int j = 0; j < kDsmChunks; ++j)
            asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                         : "r"(at + j * kDsmThreads * 16));
#pragma unroll
        for (int j = 0; j < kDsmChunks; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    keep(sum, stamps);
    end(stamp, stamps);
    hopper::cluster_sync();
}

// --- host

template <class F>
void cycles(Bench& bench, const std::string& key, double per, F launch) {
    std::vector<double> values, clocks;
    for (int i = -2; i < kRepeats; ++i) {
        Launched seen = bench.once(launch, 1);
        if (i < 0) continue;
        values.push_back(seen.cycles / per);
        clocks.push_back(bench.once([](Stamp* s) { spin<<<1, 32>>>(500000, s); }, 1).mhz);
    }
    print_line(key, "cycle", values, clocks);
}

template <class K, class... A>
cudaError_t launch_cluster(K kernel, int blocks, int threads, int size, A... arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(size), attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(unsigned(blocks)), config.blockDim = dim3(unsigned(threads));
    config.attrs = &attribute, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    wake(bench, 100);
    auto upload = [](const std::vector<uint64_t>& next) {
        auto* device = device_alloc<uint64_t>(next.size());
        CHECK_CUDA(cudaMemcpy(device, next.data(), next.size() * 8, cudaMemcpyHostToDevice));
        return device;
    };
    auto laid = [&](size_t slots, size_t stride, bool to_itself = false) {
        std::vector<uint64_t> next = ring(slots, stride, key);
        for (size_t i = 0; to_itself && i < slots; ++i) next[i] = i * stride;
        auto* base = device_alloc<uint8_t>(slots * stride);
        uint64_t* places = upload(next);
        lay<<<256, 256>>>(base, places, slots, stride);
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaFree(places));
        return base;
    };
    const uint64_t* small = upload(ring(kSharedWords, 4, key));  // 4 KiB
    cycles(bench, "latency:smem", kHops, [&](Stamp* s) { chase_shared<Path::shared><<<1, 1>>>(small, 1, 0, s); });
    const uint8_t* near = laid(512, 32);  // 16 KiB, one word a sector
    cycles(bench, "latency:l1", kHops, [&](Stamp* s) { chase<Path::l1><<<1, 1>>>(near, 1024, s); });
    const uint8_t* middle = laid(32768, 128);  // 4 MiB, one word a line
    cycles(bench, "latency:l2", kHops, [&](Stamp* s) { chase<Path::l2><<<1, 1>>>(middle, 33000, s); });

    // HBM: a ring far larger than L2, so that kHops new lines a launch are never there; 1 GiB of one word in 4 KiB.
    constexpr size_t kSlots = 262144;
    const uint8_t* large = laid(kSlots, 4096);
    auto* flush = device_alloc<uint8_t>(size_t(256) << 20);
    int warm = 0;
    cycles(bench, "latency:hbm", kHops, [&](Stamp* s) {
        CHECK_CUDA(cudaMemsetAsync(flush, warm & 255, size_t(256) << 20));  // and what was there is driven out
        chase<Path::l2><<<1, 1>>>(large, warm++ % 64, s);
    });

    // L2 near and far: single lines differ by which half of L2 holds them.
    constexpr int kLines = 4096;
    const uint8_t* single = laid(kLines, 512, true);
    auto* counts = device_alloc<uint32_t>(kLines);
    std::vector<double> near_cycles, far_cycles, clocks;
    for (int i = -1; i < kRepeats; ++i) {
        poison(counts, kLines * 4);
        Launched seen = bench.once([&](Stamp* s) { lines<<<1, 1>>>(single, kLines, 512, counts, s); }, 1);
        std::vector<uint32_t> all = to_host(counts, kLines);
        std::sort(all.begin(), all.end());
        if (i < 0) continue;
        near_cycles.push_back(all[kLines / 20] / 16.0);         // the 5th and the 95th in 100: what single lines show
        far_cycles.push_back(all[kLines - kLines / 20] / 16.0);  // without the outliers of refresh and arbitration
        clocks.push_back(seen.mhz);
    }
    print_line("latency:l2:near", "cycle", near_cycles, clocks);
    print_line("latency:l2:far", "cycle", far_cycles, clocks);

    constexpr int kTrips = 512;
    auto* trips = device_alloc<uint32_t>(kTrips * 64);
    cycles(bench, "latency:store-fence-load", kTrips, [&](Stamp* s) { round_trip<<<1, 1>>>(trips, kTrips, s); });
    cycles(bench, "latency:atomic", kHops, [&](Stamp* s) { atomics<<<1, 1>>>(trips, s); });

    // TMA against an ordinary load: from L2 (the second launch on) and from HBM (rows not seen before, L2 flushed).
    constexpr int kFetches = 256;
    const int tile = 32768 + 1024;
    CHECK_CUDA(cudaFuncSetAttribute(fetch, cudaFuncAttributeMaxDynamicSharedMemorySize, tile));
    for (int rows : {1, 8, 64, 256}) {
        CUtensorMap map = hopper::matrix_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, large, (size_t(1) << 30) / 128, 32, unsigned(rows), 32,
                                             hopper::Swizzle::none);
        std::string size = std::to_string(rows * 128) + "B";
        auto from_l2 = [&](int by_tma) {
            return [&, by_tma](Stamp* s) { fetch<<<1, 1, tile>>>(map, reinterpret_cast<const uint32_t*>(large), rows, kFetches, 0, by_tma, s); };
        };
        int place = 0;
        auto from_hbm = [&](int by_tma) {
            return [&, by_tma](Stamp* s) {
                CHECK_CUDA(cudaMemsetAsync(flush, place & 255, size_t(256) << 20));
                fetch<<<1, 1, tile>>>(map, reinterpret_cast<const uint32_t*>(large), rows, kFetches, (place++ % 64) * kFetches * 256, by_tma, s);
            };
        };
        if (rows == 1) {
            cycles(bench, "latency:load:l2", kFetches, from_l2(0));
            cycles(bench, "latency:load:hbm", kFetches, from_hbm(0));
        }
        cycles(bench, "latency:tma:l2:" + size, kFetches, from_l2(1));
        cycles(bench, "latency:tma:hbm:" + size, kFetches, from_hbm(1));
    }

    // Distributed shared memory. 16 blocks are beyond the portable size, and not every GPU has room for them.
    CHECK_CUDA(cudaFuncSetAttribute(chase_shared<Path::remote>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CHECK_CUDA(cudaFuncSetAttribute(dsm_read, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cycles(bench, "latency:dsm:own", kHops, [&](Stamp* s) { CHECK_CUDA(launch_cluster(chase_shared<Path::own>, 1, 1, 1, small, 1, 0, s)); });
    const uint4* words = reinterpret_cast<const uint4*>(large);
    for (int size : {2, 4, 8, 16}) {
        const std::string of = ":cluster" + std::to_string(size);
        if (launch_cluster(chase_shared<Path::remote>, size, 1, size, small, size, 0, bench.stamps) != cudaSuccess) {
            (void)cudaGetLastError();
            std::fprintf(stderr, "note: no cluster of %d blocks fits this GPU\n", size);
            continue;
        }
        CHECK_CUDA(cudaDeviceSynchronize());
        for (int all : {0, 1})
            cycles(bench, "latency:dsm:remote" + of + (all ? ":all" : ""), kHops, [&](Stamp* s) {
                CHECK_CUDA(launch_cluster(chase_shared<Path::remote>, size, 1, size, small, size, all, s));
            });
        const int blocks = bench.sms() / size * size, passes = 500;
        const char* names[] = {"ring", "pair", "broadcast"};
        for (int pattern = 0; pattern < 3; ++pattern)
            rate(bench, std::string("dsm:") + names[pattern] + of, "byte/s", double(blocks) * kDsmChunks * kDsmThreads * 16 * passes, blocks,
                 [&](Stamp* s) { CHECK_CUDA(launch_cluster(dsm_read, blocks, kDsmThreads, size, words, size, pattern, passes, s)); });
    }
    return 0;
}
