// Reads off a GPU (sm_90a) how wgmma takes the metadata of a 2:4 sparse A, in a second; prints what differs from what
// hopper::wgmma_sparse says of it, and exits 1 then.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I kernels tests/gpu/sparse_probe.cu -o probe && ./probe
//
// 1. B is the identity, so that the product is A with its zeros. Every thread's metadata says "places 0 and 1"; then one lane's
//    four bits at a time say "places 2 and 3", and the row and the four neighbours that change are theirs.
// 2. What each value of four bits does.
// 3. Whether the metadata's register may change while wgmma runs: many steps with metadata of their own, exact in FP32; two
//    warpgroups, so that one's product waits for the other's.
#include "../../kernels/common.cuh"
#include "../../kernels/hopper.cuh"

using bf16 = __nv_bfloat16;

constexpr int kRows = 64, kColumns = 256, kCases = 2 * 32 * 8, kSteps = 64, kLow = 0x4, kHigh = 0xe;

// A as in the GEMM: rows of 64 bytes, 64B-swizzled, of which a step takes the first 32. B: rows of 128 bytes, the first 64.
struct Tiles {
    unsigned char a[kRows * 64], b[kColumns * 128];
};
__device__ void put(Tiles& tiles, const float* a, const float* b) {
    for (int i = threadIdx.x; i < kRows * 16; i += blockDim.x) {
        int row = i / 16, byte = row * 64 + i % 16 * 2;
        *reinterpret_cast<bf16*>(tiles.a + (byte ^ ((byte >> 7 & 3) << 4))) = __float2bfloat16(a[i]);
    }
    for (int i = threadIdx.x; i < kColumns * 32; i += blockDim.x) {
        int row = i / 32, byte = row * 128 + i % 32 * 2;
        *reinterpret_cast<bf16*>(tiles.b + (byte ^ ((byte >> 7 & 7) << 4))) = __float2bfloat16(b[i]);
    }
    hopper::shared_visible_to_async();
    __syncthreads();
}
__device__ uint64_t descriptor_a(const Tiles& tiles) {
    return hopper::descriptor(hopper::address(tiles.a), 16, 512, hopper::Swizzle::b64);
}
__device__ uint64_t descriptor_b(const Tiles& tiles) { return hopper::descriptor_128(hopper::address(tiles.b)); }

// The row of sum[4 * j + 2 * h].
__device__ int row_of(int h) { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + 8 * h; }

template <int Selector>
__device__ void one(float (&sum)[128], const Tiles& tiles, uint32_t meta) {
    hopper::wgmma_fence();
    hopper::wgmma_sparse<Selector>(sum, descriptor_a(tiles), descriptor_b(tiles), meta, 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(sum);
}

// words: [case][thread]; out: [case][64][32], the product's first 32 columns.
__global__ void __launch_bounds__(128, 1)
    probe(const float* a, const float* b, const uint32_t* words, const int* selectors, int cases, float* out) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    put(tiles, a, b);
    for (int i = 0; i < cases; ++i) {
        float sum[128];
        uint32_t meta = words[i * 128 + threadIdx.x];
        if (selectors[i]) one<1>(sum, tiles, meta);
        else one<0>(sum, tiles, meta);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                out[(size_t(i) * kRows + row_of(e / 2)) * 32 + j * 8 + threadIdx.x % 4 * 2 + e % 2] = sum[4 * j + e];
    }
}

// A step waits for its product; the next step's word takes the register while it runs; the word is kept until its product is done.
enum class Flight { none, same, kept };

// A use of the register that the compiler can neither move nor drop.
__device__ __forceinline__ void use(uint32_t& all, uint32_t meta) { asm volatile("xor.b32 %0, %0, %1;" : "+r"(all) : "r"(meta)); }

// out: [warpgroup][64][256].
template <Flight F>
__global__ void __launch_bounds__(256, 1) sweep(const float* a, const float* b, const uint32_t* words, float* out) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
    put(tiles, a, b);
    volatile uint32_t* mine = reinterpret_cast<volatile uint32_t*>(shared + sizeof(Tiles)) + threadIdx.x % 128;
    if (threadIdx.x < 128)
        for (int i = 0; i < kSteps; ++i) mine[i * 128] = words[i * 128 + threadIdx.x];
    __syncthreads();
    const uint64_t at_a = descriptor_a(tiles), at_b = descriptor_b(tiles);
    float sum[128];
    auto issue = [&](uint32_t meta, int step) {
        hopper::wgmma_fence();
        hopper::wgmma_sparse<0>(sum, at_a, at_b, meta, step);
        hopper::wgmma_commit();
    };
    if constexpr (F == Flight::kept) {
        uint32_t even = 0, odd = 0, all = 0;
#pragma unroll 1
        for (int i = 0; i < kSteps; i += 2) {
            even = mine[i * 128];
            issue(even, i);
            hopper::wgmma_wait<1>();
            use(all, odd);
            odd = mine[(i + 1) * 128];
            issue(odd, 1);
            hopper::wgmma_wait<1>();
            use(all, even);
        }
        hopper::wgmma_wait<0>();
        use(all, odd);
        if (all == 0x9e3779b9u && out == nullptr) __trap();
    } else {
#pragma unroll 1
        for (int i = 0; i < kSteps; ++i) {
            issue(mine[i * 128], i);
            hopper::wgmma_wait<F == Flight::same ? 1 : 0>();
        }
    }
    hopper::wgmma_wait<0>();
    hopper::pin(sum);
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            out[(threadIdx.x / 128 * kRows + row_of(e / 2)) * kColumns + j * 8 + threadIdx.x % 4 * 2 + e % 2] = sum[4 * j + e];
}

template <class T>
T* to_device(const std::vector<T>& host) {
    T* dev = device_alloc<T>(host.size());
    CHECK_CUDA(cudaMemcpy(dev, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return dev;
}
template <class Kernel>
void allow(Kernel kernel, int bytes) {
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// What hopper::wgmma_sparse says: whose bits (thread, first bit) hold the places of `four` of `row`.
struct Place {
    int thread, bit;
};
Place place_of(int row, int four, int selector) {
    return {row / 16 * 32 + row % 8 * 4 + selector * 2 + four / 4, row % 16 / 8 * 16 + four % 4 * 4};
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::mt19937 random{unsigned(seed(args))};
    args.done();
    int bad = 0;

    // 1: packed element j of a row is j + 1, so that the product's values name it.
    std::vector<float> a(kRows * 16), identity(kColumns * 32, 0.f);
    for (int i = 0; i < kRows * 16; ++i) a[i] = float(i % 16 + 1);
    for (int i = 0; i < 32; ++i) identity[i * 32 + i] = 1;
    std::vector<uint32_t> words(size_t(kCases) * 128, 0x44444444u);
    std::vector<int> selectors(kCases);
    for (int i = 0; i < kCases; ++i) {
        int lane = i / 8 % 32, nibble = i % 8;
        selectors[i] = i / 256;
        for (int warp = 0; warp < 4; ++warp)
            words[i * 128 + warp * 32 + lane] ^= uint32_t(kLow ^ kHigh) << (4 * nibble);
    }
    float *dev_a = to_device(a), *dev_identity = to_device(identity);
    float* out = device_alloc<float>(size_t(kCases) * kRows * 32);
    allow(probe, sizeof(Tiles));
    probe<<<1, 128, sizeof(Tiles)>>>(dev_a, dev_identity, to_device(words), to_device(selectors), kCases, out);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    auto product = to_host(out, size_t(kCases) * kRows * 32);
    std::vector<std::string> found(kCases);
    for (int i = 0; i < kCases; ++i) {
        std::string text;
        int count = 0;
        bool as_said = true;
        for (int row = 0; row < kRows; ++row)
            for (int four = 0; four < 8; ++four) {
                const float* seen = &product[(size_t(i) * kRows + row) * 32 + four * 4];
                Place said = place_of(row, four, selectors[i]);
                bool moved = i / 8 % 32 == said.thread % 32 && i % 8 == said.bit / 4;
                float first = float(2 * four + 1);
                float expected[4] = {moved ? 0 : first, moved ? 0 : first + 1, moved ? first : 0, moved ? first + 1 : 0};
                if (std::memcmp(seen, expected, sizeof expected)) as_said = false;
                float plain[4] = {first, first + 1, 0, 0};
                if (!std::memcmp(seen, plain, sizeof plain)) continue;
                if (++count <= 5) {
                    char one[96];
                    std::snprintf(one, sizeof one, " (row %d, four %d: %g %g %g %g)", row, four, seen[0], seen[1], seen[2], seen[3]);
                    text += one;
                }
            }
        found[i] = text + (count > 5 ? " ..." : "");
        if (!as_said) ++bad;
    }
    std::printf("1. places: %d of %d cases as wgmma_sparse says\n", kCases - bad, kCases);
    if (bad)
        for (int i = 0; i < kCases; ++i)
            if (i % 256 < 64 || i % 256 >= 248)  // lanes 0 to 7 and 31
                std::printf("   selector %d lane %d bits %d:%s\n", selectors[i], i / 8 % 32, i % 8 * 4, found[i].c_str());

    // 2
    int pairs = 0;
    for (int value : {0x4, 0x8, 0xc, 0x9, 0xd, 0xe}) {
        std::vector<uint32_t> word(128, 0x11111111u * value);
        probe<<<1, 128, sizeof(Tiles)>>>(dev_a, dev_identity, to_device(word), to_device(std::vector<int>{0}), 1, out);
        CHECK_CUDA(cudaDeviceSynchronize());
        auto four = to_host(out, 4);
        bool ok = four[value & 3] == 1 && four[value >> 2] == 2;
        pairs += ok;
        std::printf("2. bits %x: %g %g %g %g%s\n", value, four[0], four[1], four[2], four[3], ok ? "" : "  NOT AS SAID");
    }
    bad += 6 - pairs;

    // 3
    std::vector<float> b(kColumns * 32);
    for (float& x : a) x = float(int(random() % 9) - 4);
    for (float& x : b) x = float(int(random() % 9) - 4);
    std::vector<uint32_t> meta(size_t(kSteps) * 128, 0);
    std::vector<double> expected(kRows * kColumns, 0);
    const int values[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    for (uint32_t& word : meta)
        for (int nibble = 0; nibble < 8; ++nibble) word |= uint32_t(values[random() % 6]) << (4 * nibble);
    for (int step = 0; step < kSteps; ++step)
        for (int row = 0; row < kRows; ++row)
            for (int four = 0; four < 8; ++four) {
                Place said = place_of(row, four, 0);
                uint32_t bits = meta[step * 128 + said.thread] >> said.bit & 15;
                for (int column = 0; column < kColumns; ++column)
                    for (int kept = 0; kept < 2; ++kept)
                        expected[row * kColumns + column] +=
                            double(a[row * 16 + four * 2 + kept]) * b[column * 32 + four * 4 + (bits >> (2 * kept) & 3)];
            }
    int bytes = sizeof(Tiles) + kSteps * 128 * 4;
    float *random_a = to_device(a), *random_b = to_device(b);
    uint32_t* dev_meta = to_device(meta);
    auto check = [&](const char* name, auto kernel) {
        allow(kernel, bytes);
        poison(out, 2 * kRows * kColumns * sizeof(float));
        kernel<<<1, 256, bytes>>>(random_a, random_b, dev_meta, out);
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaDeviceSynchronize());
        auto seen = to_host(out, 2 * kRows * kColumns);
        int wrong = 0;
        for (int i = 0; i < 2 * kRows * kColumns; ++i) wrong += double(seen[i]) != expected[i % (kRows * kColumns)];
        std::printf("3. %s: %d of %d outputs wrong\n", name, wrong, 2 * kRows * kColumns);
        return wrong;
    };
    bad += check("each step waits for its product", sweep<Flight::none>);
    check("the next word replaces it while the product runs", sweep<Flight::same>);
    bad += check("the word is kept until its product is done", sweep<Flight::kept>);
    return bad ? 1 : 0;
}
