// Mu-law decoding in a ring: one warp decodes frames (with dither) into shared memory, seven warps scale them by a window
// and write them out.
#include "g_util.cuh"
using namespace held;

constexpr int kFrame = 8192, kBuffers = 2;
constexpr size_t kRingBytes = size_t(kFrame) * kBuffers * 4;

__host__ __device__ inline uint32_t dither_bits(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

__device__ __forceinline__ float decode(uint32_t code, uint32_t where) {
    float v = float(int(code) - 128) * (1.0f / 128.0f);
    float magnitude = (ex2(8.0f * fabsf(v)) - 1.0f) * (1.0f / 255.0f);
    float dither = float(dither_bits(where) >> 8) * 0x1p-24f - float(dither_bits(where ^ 0x5bd1e995u) >> 8) * 0x1p-24f;
    return copysignf(magnitude, v) + dither * (1.0f / 65536.0f);
}

__global__ void __launch_bounds__(256) decode_frames(const uint32_t* codes, const float* window, float* out, int frames) {
    extern __shared__ __align__(128) float ring[];
    __shared__ __align__(8) uint64_t full[kBuffers], empty[kBuffers];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kBuffers; ++i) {
            bar_init(&full[i], 32);
            bar_init(&empty[i], 7);
        }
    }
    __syncthreads();
    int turn = 0;
    for (int frame = blockIdx.x; frame < frames; frame += gridDim.x, ++turn) {
        int slot = turn % kBuffers, round = turn / kBuffers;
        float* buffer = ring + slot * kFrame;
        if (warp == 0) {
            if (round > 0) bar_wait(&empty[slot], (round - 1) & 1);
#pragma unroll 4
            for (int i = lane; i < kFrame / 4; i += 32) {
                size_t word = size_t(frame) * (kFrame / 4) + i;
                uint32_t c = codes[word], at = uint32_t(word) * 4;
                reinterpret_cast<float4*>(buffer)[i] = make_float4(decode(c & 255, at), decode(c >> 8 & 255, at + 1),
                                                                  decode(c >> 16 & 255, at + 2), decode(c >> 24, at + 3));
            }
            bar_arrive(&full[slot]);
        } else {
            bar_wait(&full[slot], round & 1);
            float4* to = reinterpret_cast<float4*>(out + size_t(frame) * kFrame);
            for (int i = threadIdx.x - 32; i < kFrame / 4; i += 224) {
                float4 v = reinterpret_cast<float4*>(buffer)[i], w = reinterpret_cast<const float4*>(window)[i];
                to[i] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
            }
            __syncwarp();
            if (lane == 0) bar_arrive(&empty[slot]);
        }
    }
}

__global__ void reference_decode(const uint8_t* codes, const float* window, float* out, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        double v = (double(codes[i]) - 128) / 128, m = (exp2(8 * fabs(v)) - 1) / 255;
        double d = double(dither_bits(uint32_t(i)) >> 8) * 0x1p-24 - double(dither_bits(uint32_t(i) ^ 0x5bd1e995u) >> 8) * 0x1p-24;
        out[i] = float((copysign(m, v) + d / 65536) * window[i % kFrame]);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int frames = int(args.get("frames", 8192));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(frames > 0 && frames <= 65536, "--frames out of range");
    size_t n = size_t(frames) * kFrame;
    uint8_t* codes = device_alloc<uint8_t>(n);
    float* window = device_alloc<float>(kFrame);
    float* out = device_alloc<float>(n);
    float* ref = device_alloc<float>(n);
    fill_uniform(codes, n, s, 0.f, 1.f);
    fill_uniform(window, kFrame, s + 1, 0.5f, 1.0f);
    reference_decode<<<1056, 256>>>(codes, window, ref, n);
    poison(out, n * 4);
    finish();
    int device = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    allow_shared(decode_frames, kRingBytes);
    auto launch = [&] { decode_frames<<<sms * 3, 256, kRingBytes>>>(reinterpret_cast<const uint32_t*>(codes), window, out, frames); };
    launch();
    finish();
    double error = device_error(out, ref, n);
    return report("faults/g-producer", median_us(launch, reps), 0, 5.0 * double(n), error, 1e-4);
}
