// Static int8 quantisation of activations (rows of 256 bf16, a scale for each group of 16 columns): a warp fetches 16 rows at a time with the
// copy engine, four warps quantise them. --piece: bytes a copy; 32 is a quantisation group, 8192 the 16 rows.
#include "../hopper.cuh"
#include "p_harness.cuh"

constexpr int kWidth = 256, kRows = 16, kSlotBytes = kRows * kWidth * 2, kSlots = 4, kBatches = 64;

__global__ void __launch_bounds__(160) quantise_stream(const uint4* __restrict__ x, const float* __restrict__ inverse, uint2* __restrict__ q, int piece) {
    using namespace hopper;
    __shared__ __align__(128) unsigned char ring[kSlots][kSlotBytes];
    __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < kSlots; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 4);
        }
        barrier_init_visible();
    }
    __syncthreads();
    const size_t first = size_t(blockIdx.x) * kBatches;
    if (warp == 4) {
        if (lane != 0) return;
        for (int b = 0; b < kBatches; ++b) {
            int s = b % kSlots;
            const char* from = reinterpret_cast<const char*>(x) + (first + b) * kSlotBytes;
            barrier_wait(&empty[s], ((b / kSlots) & 1) ^ 1);
            barrier_expect(&full[s], kSlotBytes);
            for (int at = 0; at < kSlotBytes; at += piece) bulk_load(address(ring[s]) + at, from + at, piece, &full[s]);
        }
        return;
    }
    float scale = inverse[lane / 2];  // a lane has the same eight columns in every row
    for (int b = 0; b < kBatches; ++b) {
        int s = b % kSlots;
        barrier_wait(&full[s], (b / kSlots) & 1);
        uint2 out[kRows / 4];
#pragma unroll
        for (int r = 0; r < kRows / 4; ++r) {
            uint4 raw = reinterpret_cast<const uint4*>(ring[s])[(r * 4 + warp) * 32 + lane];
            uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w}, packed[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float2 v = p_unpack(w[i]);
                int low = min(max(__float2int_rn(v.x * scale), -127), 127), high = min(max(__float2int_rn(v.y * scale), -127), 127);
                packed[i / 2] |= (uint32_t(low) & 0xffu | (uint32_t(high) & 0xffu) << 8) << (i % 2 * 16);
            }
            out[r] = make_uint2(packed[0], packed[1]);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[s]);
#pragma unroll
        for (int r = 0; r < kRows / 4; ++r) q[((first + b) * kRows + r * 4 + warp) * 32 + lane] = out[r];
    }
}

struct Reference {
    const __nv_bfloat16* x;
    const float* inverse;
    __device__ double operator()(size_t i) const {
        float v = rintf(__bfloat162float(x[i]) * inverse[i % kWidth / 16]);
        return fminf(fmaxf(v, -127.0f), 127.0f);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int blocks = positive(args, "blocks", 528, 4096), piece = positive(args, "piece", 32, kSlotBytes);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(piece % 16 == 0 && kSlotBytes % piece == 0, "--piece must be a multiple of 16 that divides 8192");
    size_t n = size_t(blocks) * kBatches * kRows * kWidth;
    auto* x = device_alloc<__nv_bfloat16>(n);
    float* inverse = device_alloc<float>(kWidth / 16);
    auto* q = device_alloc<int8_t>(n);
    fill_uniform(x, n, key, -1.0f, 1.0f);
    fill_uniform(inverse, size_t(kWidth / 16), key + 1, 100.0f, 140.0f);
    poison(q, n);
    auto launch = [&] { quantise_stream<<<blocks, 160>>>(reinterpret_cast<uint4*>(x), inverse, reinterpret_cast<uint2*>(q), piece); };
    launch_once(launch);
    double error = device_error(q, n, Reference{x, inverse});
    return report("faults/p-pieces", median_us(launch, reps), 0, 3.0 * n, error, 0);
}
