// 3x3 convolution, zero padding, FP32, planes [channel][height][width].
#include "h_harness.cuh"

__global__ void conv3x3(const float* __restrict__ in, const float* __restrict__ weight, float* __restrict__ out,
                        int channels, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z;
    if (x >= width || y >= height) return;
    float sum = 0;
    for (int c = 0; c < channels; ++c) {
        const float* plane = in + size_t(c) * height * width;
        const float* w = weight + (size_t(k) * channels + c) * 9;
#pragma unroll
        for (int dy = -1; dy <= 1; ++dy)
#pragma unroll
            for (int dx = -1; dx <= 1; ++dx) {
                int u = x + dx, v = y + dy;
                if (u >= 0 && u < width && v >= 0 && v < height)
                    sum += plane[size_t(v) * width + u] * w[(dy + 1) * 3 + dx + 1];
            }
    }
    out[(size_t(k) * height + y) * width + x] = sum;
}

constexpr int kTileX = 64, kTileY = 8, kOut = 16;

// 32x8 threads; each makes two pixels of 16 output planes.
__global__ void __launch_bounds__(256, 3) conv3x3_tile(const float* __restrict__ in, const float* __restrict__ weight,
                                                       float* __restrict__ out, int channels, int height, int width) {
    __shared__ float tile[(kTileY + 2) * (kTileX + 2)];
    __shared__ float4 taps[9][kOut / 4];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 32 + tx;
    int x0 = blockIdx.x * kTileX, y0 = blockIdx.y * kTileY, k0 = blockIdx.z * kOut;
    float sum[2][kOut] = {};
    constexpr int kArea = (kTileY + 2) * (kTileX + 2), kLoads = (kArea + 255) / 256;
    int offset[kLoads];  // of this thread's elements of the tile in a plane; -1 in the padding
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        int at = thread + i * 256, u = x0 + at % (kTileX + 2) - 1, v = y0 + at / (kTileX + 2) - 1;
        offset[i] = u >= 0 && u < width && v >= 0 && v < height ? v * width + u : -1;
    }
    for (int c = 0; c < channels; ++c) {
        const float* plane = in + size_t(c) * height * width;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            if (thread + i * 256 < kArea) tile[thread + i * 256] = offset[i] >= 0 ? plane[offset[i]] : 0.0f;
        if (thread < 9 * kOut) {
            int k = thread / 9, t = thread % 9;
            reinterpret_cast<float*>(taps)[t * kOut + k] = weight[(size_t(k0 + k) * channels + c) * 9 + t];
        }
        __syncthreads();
#pragma unroll
        for (int t = 0; t < 9; ++t) {
            const float* p = tile + (ty + t / 3) * (kTileX + 2) + tx + t % 3;
            float a = p[0], b = p[32];
#pragma unroll
            for (int q = 0; q < kOut / 4; ++q) {
                float4 w = taps[t][q];
                sum[0][q * 4 + 0] += a * w.x;
                sum[0][q * 4 + 1] += a * w.y;
                sum[0][q * 4 + 2] += a * w.z;
                sum[0][q * 4 + 3] += a * w.w;
                sum[1][q * 4 + 0] += b * w.x;
                sum[1][q * 4 + 1] += b * w.y;
                sum[1][q * 4 + 2] += b * w.z;
                sum[1][q * 4 + 3] += b * w.w;
            }
        }
    }
    int y = y0 + ty;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
        int x = x0 + tx + p * 32;
        if (x < width && y < height)
#pragma unroll
            for (int k = 0; k < kOut; ++k) out[(size_t(k0 + k) * height + y) * width + x] = sum[p][k];
    }
}

struct Reference {
    const float *in, *weight;
    int channels, height, width;
    __device__ double operator()(size_t i) const {
        int x = int(i % width), y = int(i / width % height);
        size_t k = i / (size_t(width) * height);
        double sum = 0;
        for (int c = 0; c < channels; ++c)
            for (int t = 0; t < 9; ++t) {
                int u = x + t % 3 - 1, v = y + t / 3 - 1;
                if (u < 0 || u >= width || v < 0 || v >= height) continue;
                sum += double(in[(size_t(c) * height + v) * width + u]) * weight[(k * channels + c) * 9 + t];
            }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int channels = positive(args, "channels", 16, 256), filters = positive(args, "filters", 48, 256);
    int height = positive(args, "height", 264, 4096), width = positive(args, "width", 512, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(!fix || filters % kOut == 0, "--filters must be a multiple of 16 for this variant");
    size_t n = size_t(channels) * height * width, m = size_t(filters) * height * width;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(m);
    float* weight = device_alloc<float>(size_t(filters) * channels * 9);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    fill_uniform(weight, size_t(filters) * channels * 9, key + 1, -1.0f, 1.0f);
    poison(out, m * sizeof(float));
    auto launch = [&] {
        if (fix)
            conv3x3_tile<<<dim3(blocks_for(width, kTileX), blocks_for(height, kTileY), filters / kOut), dim3(32, 8)>>>(
                in, weight, out, channels, height, width);
        else
            conv3x3<<<dim3(blocks_for(width, 64), blocks_for(height, 3), filters), dim3(64, 3)>>>(
                in, weight, out, channels, height, width);
    };
    launch_once(launch);
    double error = device_error(out, m, Reference{in, weight, channels, height, width});
    double us = median_us(launch, reps);
    return report("faults/h-conv", us, 18.0 * channels * double(m), 0, error, 1e-5);
}
