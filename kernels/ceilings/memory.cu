// Streams: HBM read, write and copy, the L2's read curve, L1, shared memory, random sectors, atomics.
#include "measure.cuh"

constexpr int kThreads = 512, kInFlight = 8;  // 8 loads of 16 bytes a thread are on their way before the first is used

__device__ __forceinline__ uint32_t mixed(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

__global__ void __launch_bounds__(kThreads) read(const uint4* in, size_t n, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    size_t stride = size_t(gridDim.x) * kThreads;
    uint32_t sum = 0;
    size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    for (; i + (kInFlight - 1) * stride < n; i += kInFlight * stride) {
        uint4 v[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) v[j] = __ldcs(in + i + j * stride);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) sum ^= mixed(v[j]);
    }
    for (; i < n; i += stride) sum ^= mixed(__ldcs(in + i));
    keep(sum, stamps);
    end(stamp, stamps);
}
__global__ void __launch_bounds__(kThreads) write(uint4* out, size_t n, uint32_t value, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    size_t stride = size_t(gridDim.x) * kThreads;
    for (size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride)
        __stcs(out + i, make_uint4(value, uint32_t(i), value, value));
    end(stamp, stamps);
}
__global__ void __launch_bounds__(kThreads) copy(const uint4* in, uint4* out, size_t n, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    size_t stride = size_t(gridDim.x) * kThreads;
    size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = __ldcs(in + i + j * stride);
#pragma unroll
        for (int j = 0; j < 4; ++j) __stcs(out + i + j * stride, v[j]);
    }
    for (; i < n; i += stride) __stcs(out + i, __ldcs(in + i));
    end(stamp, stamps);
}

// The working set again and again, past L1 (ld.global.cg): all blocks together walk it in steps of 64 KiB.
constexpr size_t kStep = size_t(kThreads) * kInFlight;
__global__ void __launch_bounds__(kThreads) read_l2(const uint4* in, size_t steps, int rounds, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    uint32_t sum = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const uint4* from = in + (blockIdx.x + size_t(round) * gridDim.x) % steps * kStep + threadIdx.x;
        uint4 v[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) v[j] = __ldcg(from + j * kThreads);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) sum ^= mixed(v[j]);
    }
    keep(sum, stamps);
    end(stamp, stamps);
}
// Each block its own window, small enough for L1.
constexpr int kChunks = 8, kWindow = (kChunks + 1) * kThreads;  // 16-byte words: 72 KiB
__global__ void __launch_bounds__(kThreads) read_l1(const uint4* in, int passes, Stamp* stamps) {
    const uint4* window = in + size_t(blockIdx.x) * kWindow + threadIdx.x;
    uint32_t sum = 0;
    for (int i = 0; i < kWindow; i += kThreads) sum ^= mixed(__ldca(window + i));  // fills L1
    Stamp stamp;
    __syncthreads();
    begin(stamp);
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
        // Every other pass begins a chunk later: loads that do not change from pass to pass could leave the loop.
        const uint4* from = window + (pass & 1) * kThreads;
        uint4 v[kChunks];
#pragma unroll
        for (int j = 0; j < kChunks; ++j)
            asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                         : "l"(from + j * kThreads));
#pragma unroll
        for (int j = 0; j < kChunks; ++j) sum ^= mixed(v[j]);
    }
    keep(sum, stamps);
    end(stamp, stamps);
}
__global__ void __launch_bounds__(kThreads) read_shared(const uint4* in, int passes, Stamp* stamps) {
    constexpr int kSharedChunks = 4, kWords = (kSharedChunks + 1) * kThreads;  // 40 KiB
    __shared__ uint4 data[kWords];
    for (int i = threadIdx.x; i < kWords; i += kThreads) data[i] = in[i];
    __syncthreads();
    Stamp stamp;
    begin(stamp);
    uint32_t sum = 0, from = uint32_t(__cvta_generic_to_shared(data + threadIdx.x));
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
        const uint32_t at = from + (pass & 1) * kThreads * 16;  // as in read_l1
        uint4 v[kSharedChunks];
#pragma unroll
        for (int j = 0; j < kSharedChunks; ++j)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                         : "r"(at + j * kThreads * 16));
#pragma unroll
        for (int j = 0; j < kSharedChunks; ++j) sum ^= mixed(v[j]);
    }
    keep(sum, stamps);
    end(stamp, stamps);
}
// One 32-byte sector a load, anywhere in the working set; the next address does not wait for the value.
__global__ void __launch_bounds__(kThreads) read_random(const uint32_t* in, uint64_t sectors, int rounds, uint64_t key,
                                                        Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    uint64_t thread = uint64_t(blockIdx.x) * kThreads + threadIdx.x;
    uint32_t sum = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        uint32_t v[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) {
            uint64_t random = diagnose_hash(key + (thread * rounds + round) * kInFlight + j);
            v[j] = __ldcg(in + (random & (sectors - 1)) * 8);
        }
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) sum ^= v[j];
    }
    keep(sum, stamps);
    end(stamp, stamps);
}
// Without a result (RED): every thread to one word, or each thread to its own.
__global__ void __launch_bounds__(kThreads) add(unsigned* out, size_t words, int rounds, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    size_t mine = (size_t(blockIdx.x) * kThreads + threadIdx.x) % words;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
        asm volatile("red.global.add.u32 [%0], %1;" ::"l"(out + mine), "r"(threadIdx.x) : "memory");
    end(stamp, stamps);
}
// One lane a warp, so that the hardware cannot merge the lanes' adds to one word.
__global__ void __launch_bounds__(kThreads) add_lane(unsigned* out, int rounds, Stamp* stamps) {
    Stamp stamp;
    begin(stamp);
    if (threadIdx.x % 32 == 0)
#pragma unroll 1
        for (int round = 0; round < rounds; ++round)
            asm volatile("red.global.add.u32 [%0], %1;" ::"l"(out), "r"(threadIdx.x) : "memory");
    end(stamp, stamps);
}

// HBM's rate is the slope of time over bytes of two sizes, so that launch, first loads and last stores (the ramp) do not
// count; events time the whole kernel, since a block ends before its stores have left.
template <class F>
void stream(Bench& bench, const std::string& key, size_t n, double bytes_each, const char* ramp, F launch) {
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) CHECK_CUDA(cudaEventCreate(&event));
    std::vector<double> values, clocks, ramps;
    for (int i = -2; i < kRepeats; ++i) {
        double seconds[2];
        Launched seen{};
        for (int half = 0; half < 2; ++half) {
            size_t size = half ? n : n / 4;
            seen = bench.once(
                [&](Stamp* s) {
                    CHECK_CUDA(cudaEventRecord(events[0]));
                    launch(size, s);
                    CHECK_CUDA(cudaEventRecord(events[1]));
                    CHECK_CUDA(cudaEventSynchronize(events[1]));
                },
                bench.sms() * 4);
            float ms = 0;
            CHECK_CUDA(cudaEventElapsedTime(&ms, events[0], events[1]));
            seconds[half] = ms * 1e-3;
        }
        if (i < 0) continue;
        double slope = (double(n) - double(n / 4)) * bytes_each / (seconds[1] - seconds[0]);
        values.push_back(slope);
        ramps.push_back(seconds[1] - double(n) * bytes_each / slope);
        clocks.push_back(seen.mhz);
    }
    print_line(key, "byte/s", values, clocks);
    if (ramp) print_line(ramp, "s", ramps, clocks);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    size_t free_bytes = 0, total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total));
    size_t bytes = size_t(2) << 30;
    while (bytes > free_bytes / 3 && bytes > (size_t(64) << 20)) bytes /= 2;
    size_t n = bytes / sizeof(uint4);
    auto* in = device_alloc<uint4>(n);
    auto* out = device_alloc<uint4>(n);
    fill_uniform(reinterpret_cast<uint32_t*>(in), n * 4, key, 0, 4294967040.0f);
    fill_uniform(reinterpret_cast<uint32_t*>(out), n * 4, key + 1, 0, 4294967040.0f);
    wake(bench, 100);

    const int blocks = bench.sms() * 4;
    stream(bench, "hbm:read", n, 16, nullptr, [&](size_t size, Stamp* s) { read<<<blocks, kThreads>>>(in, size, s); });
    stream(bench, "hbm:write", n, 16, nullptr,
           [&](size_t size, Stamp* s) { write<<<blocks, kThreads>>>(out, size, uint32_t(key), s); });
    stream(bench, "hbm", n, 32, "ramp:event", [&](size_t size, Stamp* s) { copy<<<blocks, kThreads>>>(in, out, size, s); });

    for (size_t mib : {2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256}) {
        size_t words = (mib << 20) / sizeof(uint4);
        if (words > n) break;
        const int rounds = 64;  // 64 KiB a block each: 2 GiB on a large GPU, at least eight passes of the largest set
        rate(bench, "l2:read:" + std::to_string(mib) + "MiB", "byte/s", double(blocks) * rounds * kStep * 16, blocks,
             [&](Stamp* s) { read_l2<<<blocks, kThreads>>>(in, words / kStep, rounds, s); });
    }
    const int l1_passes = 2000, l1_blocks = bench.sms();
    CHECK_CUDA(cudaFuncSetAttribute(read_l1, cudaFuncAttributePreferredSharedMemoryCarveout, 0));
    rate(bench, "l1", "byte/s", double(l1_blocks) * kChunks * kThreads * 16 * l1_passes, l1_blocks,
         [&](Stamp* s) { read_l1<<<l1_blocks, kThreads>>>(in, l1_passes, s); });
    const int shared_passes = 2000, shared_blocks = bench.sms() * 4;
    rate(bench, "smem", "byte/s", double(shared_blocks) * kThreads * 4 * 16 * shared_passes, shared_blocks,
         [&](Stamp* s) { read_shared<<<shared_blocks, kThreads>>>(in, shared_passes, s); });

    for (size_t mib : {4, 16, 32, 64, 256, 1024, 2048}) {
        if ((mib << 20) > bytes) break;
        const int rounds = 32;
        uint64_t call = 0;
        rate(bench, "random-sector:" + std::to_string(mib) + "MiB", "sector/s", double(blocks) * kThreads * rounds * kInFlight, blocks,
             [&](Stamp* s) {
                 read_random<<<blocks, kThreads>>>(reinterpret_cast<uint32_t*>(in), (mib << 20) / 32, rounds, key + (call++ << 40), s);
             });
    }
    auto* words = reinterpret_cast<unsigned*>(out);
    rate(bench, "atomic:same", "op/s", double(blocks) * kThreads * 64, blocks,
         [&](Stamp* s) { add<<<blocks, kThreads>>>(words, 1, 64, s); });
    rate(bench, "atomic:same-lane", "op/s", double(blocks) * (kThreads / 32) * 64, blocks,
         [&](Stamp* s) { add_lane<<<blocks, kThreads>>>(words, 64, s); });
    rate(bench, "atomic:spread", "op/s", double(blocks) * kThreads * 2048, blocks,
         [&](Stamp* s) { add<<<blocks, kThreads>>>(words, size_t(blocks) * kThreads, 2048, s); });
    return 0;
}
