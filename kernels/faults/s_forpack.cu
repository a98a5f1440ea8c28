// Frame-of-reference packing of a column of a table: the smallest value and the width of each chunk of 4096 values, then every value less the
// smallest in that many bits. Chunks have slots of their own (16 bits a value); a warp packs 1024 values so that bit-packed words of a lane
// lie 32 words apart. --variant fault: one cooperative launch looks at the whole column first, and packs after a grid-wide barrier; fix: a
// block packs a chunk right after it has looked at it.
#include <cooperative_groups.h>

#include "p_harness.cuh"

constexpr int kThreads = 128, kValues = 32, kChunk = kThreads * kValues, kSlotBits = 16, kSlotWords = kChunk * kSlotBits / 32;

struct Header {
    int base, width;
};

struct Column {
    const int* values;
    Header* headers;
    unsigned* packed;
    int chunks;
};

__device__ __forceinline__ void measure(const Column& column, int chunk) {
    __shared__ int least, most;
    if (threadIdx.x == 0) {
        least = INT_MAX;
        most = INT_MIN;
    }
    __syncthreads();
    const int4* in = reinterpret_cast<const int4*>(column.values + size_t(chunk) * kChunk) + threadIdx.x;
    int lo = INT_MAX, hi = INT_MIN;
#pragma unroll
    for (int i = 0; i < kValues / 4; ++i) {
        int4 v = in[i * kThreads];
        lo = min(min(min(lo, v.x), min(v.y, v.z)), v.w);
        hi = max(max(max(hi, v.x), max(v.y, v.z)), v.w);
    }
    lo = __reduce_min_sync(0xffffffffu, lo);
    hi = __reduce_max_sync(0xffffffffu, hi);
    if (threadIdx.x % 32 == 0) {
        atomicMin(&least, lo);
        atomicMax(&most, hi);
    }
    __syncthreads();
    if (threadIdx.x == 0) column.headers[chunk] = {least, 32 - __clz(most - least)};
    __syncthreads();
}

__device__ __forceinline__ void pack(const Column& column, int chunk) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Header header = column.headers[chunk];
    const int* in = column.values + size_t(chunk) * kChunk + warp * kValues * 32 + lane;
    unsigned* out = column.packed + size_t(chunk) * kSlotWords + warp * (kSlotWords / (kThreads / 32)) + lane;
    unsigned long long pending = 0;
    int bits = 0;
#pragma unroll 1
    for (int i = 0; i < kValues; i += 16) {
        int v[16];
#pragma unroll
        for (int k = 0; k < 16; ++k) v[k] = in[(i + k) * 32];
#pragma unroll
        for (int k = 0; k < 16; ++k) {
            pending |= (unsigned long long)(unsigned(v[k]) - unsigned(header.base)) << bits;
            bits += header.width;
            if (bits >= 32) {
                *out = unsigned(pending);
                out += 32;
                pending >>= 32;
                bits -= 32;
            }
        }
    }
}

__global__ void __launch_bounds__(kThreads) pack_after_all(Column column) {
    for (int c = blockIdx.x; c < column.chunks; c += gridDim.x) measure(column, c);
    cooperative_groups::this_grid().sync();
    for (int c = blockIdx.x; c < column.chunks; c += gridDim.x) pack(column, c);
}

__global__ void __launch_bounds__(kThreads) pack_at_once(Column column) {
    for (int c = blockIdx.x; c < column.chunks; c += gridDim.x) {
        measure(column, c);
        pack(column, c);
    }
}

// Keys near a value that grows from chunk to chunk, over a range of 6 to 12 bits.
__global__ void column_of_keys(int* values, size_t n, unsigned long long key) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        unsigned chunk = unsigned(i / kChunk);
        unsigned long long shape = diagnose_hash(key ^ chunk);
        unsigned range = 64u << shape % 7;
        values[i] = int(chunk * 9000u + unsigned(shape >> 40) % 5000u + unsigned(diagnose_hash(key + 1 + i) >> 32) % range);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int chunks = positive(args, "chunks", 65536, 1 << 17);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(chunks) * kChunk;
    int* values = device_alloc<int>(n);
    Column column{values, device_alloc<Header>(chunks), device_alloc<unsigned>(size_t(chunks) * kSlotWords), chunks};
    column_of_keys<<<4096, 256>>>(values, n, key);
    CHECK_CUDA(cudaGetLastError());
    poison(column.headers, chunks * sizeof(Header));
    poison(column.packed, size_t(chunks) * kSlotWords * 4);
    int device = 0, sms = 0, each = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, pack_after_all, kThreads, 0));
    const int blocks = sms * std::min(each, 12);
    auto launch = [&] {
        if (fix) {
            pack_at_once<<<blocks, kThreads>>>(column);
        } else {
            void* parameters[] = {&column};
            CHECK_CUDA(cudaLaunchCooperativeKernel((const void*)pack_after_all, dim3(blocks), dim3(kThreads), parameters, 0, nullptr));
        }
    };
    launch_once(launch);
    size_t wrong = 0;
    auto headers = to_host(column.headers, chunks);
    for (int c = 0; c < chunks; c += std::max(1, chunks / 1000) | 1) {
        auto v = to_host(values + size_t(c) * kChunk, kChunk);
        auto packed = to_host(column.packed + size_t(c) * kSlotWords, kSlotWords);
        int least = *std::min_element(v.begin(), v.end()), most = *std::max_element(v.begin(), v.end()), width = 0;
        while (width < 31 && (most - least) >> width) ++width;
        if (headers[c].base != least || headers[c].width != width) {
            ++wrong;
            continue;
        }
        for (int i = 0; i < kChunk; ++i) {
            // Value i is number `place` of its lane; its bits may go on in the lane's next word.
            int warp = i / (32 * kValues), place = i / 32 % kValues, lane = i % 32, bit = place * width;
            const unsigned* words = packed.data() + warp * (kSlotWords / (kThreads / 32)) + lane;
            unsigned long long both = words[bit / 32 * 32];
            if (bit % 32 + width > 32) both |= (unsigned long long)words[(bit / 32 + 1) * 32] << 32;
            unsigned got = unsigned(both >> bit % 32) & ((1u << width) - 1);
            wrong += int(got) != v[i] - least;
        }
    }
    return report("faults/s-forpack", median_us(launch, reps), 0, 5.125 * n, double(wrong), 0);
}
