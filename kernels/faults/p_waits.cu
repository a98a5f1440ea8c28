// e4m3 linear layer with the activations at rest: a block keeps 128 rows (K = 1024) in shared memory and the weights stream by through a
// ring of the copy engine, 128 columns x 128 bytes a slot. One warpgroup multiplies. Scales a row and a column, bf16 out.
// --variant fault: a wait after every wgmma; fix: a slot's eight in one group, and one group in flight.
#include <cuda_fp8.h>

#include "../hopper.cuh"
#include "../mma.cuh"
#include "p_harness.cuh"

constexpr int kDepth = 1024, kPanels = kDepth / 128, kPanel = 128 * 128, kSlots = 4;

template <bool EVERY>
__global__ void __launch_bounds__(160, 1) stream_weights(const __grid_constant__ CUtensorMap rows, const __grid_constant__ CUtensorMap weights,
                                                         const float* __restrict__ row_scale, const float* __restrict__ column_scale,
                                                         __nv_bfloat16* __restrict__ out, int n) {
    using namespace hopper;
    extern __shared__ unsigned char raw[];
    __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots], ready;
    const uint32_t base = (address(raw) + 1023u) & ~1023u, ring = base + kPanels * kPanel;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, turns = n / 128 * kPanels;
    if (threadIdx.x == 0) {
        for (int s = 0; s < kSlots; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 4);
        }
        barrier_init(&ready, 1);
        barrier_init_visible();
    }
    __syncthreads();
    if (warp == 4) {
        if (lane != 0) return;
        barrier_expect(&ready, kPanels * kPanel);
        for (int p = 0; p < kPanels; ++p) tma_load(base + p * kPanel, &rows, &ready, p * 128, int(blockIdx.x) * 128);
        for (int t = 0; t < turns; ++t) {
            int s = t % kSlots;
            barrier_wait(&empty[s], ((t / kSlots) & 1) ^ 1);
            barrier_expect(&full[s], kPanel);
            tma_load(ring + s * kPanel, &weights, &full[s], t % kPanels * 128, t / kPanels * 128);
        }
        return;
    }
    float d[2][64], scale[2][2];
    const size_t first = size_t(blockIdx.x) * 128 + warp * 16 + lane / 4;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 64; ++i) d[m][i] = 0;
        scale[m][0] = row_scale[first + m * 64];
        scale[m][1] = row_scale[first + m * 64 + 8];
    }
    auto release = [&](int t) {
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[t % kSlots]);
    };
    barrier_wait(&ready, 0);
#pragma unroll 1
    for (int tile = 0; tile < n / 128; ++tile) {
        pin(d[0]);
        pin(d[1]);
#pragma unroll 1
        for (int p = 0; p < kPanels; ++p) {
            const int t = tile * kPanels + p;
            barrier_wait(&full[t % kSlots], (t / kSlots) & 1);
            const uint32_t b = ring + t % kSlots * kPanel;
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    Wgmma<Type::e4m3, 128>::ss(d[m], descriptor_128(base + p * kPanel + m * 64 * 128 + k * 32), descriptor_128(b + k * 32), p + k > 0);
                    if constexpr (EVERY) {
                        wgmma_commit();
                        wgmma_wait<0>();
                        wgmma_fence();
                    }
                }
            if constexpr (EVERY) {
                release(t);
            } else {
                wgmma_commit();
                wgmma_wait<1>();
                if (p > 0) release(t - 1);
            }
        }
        wgmma_wait<0>();
        pin(d[0]);
        pin(d[1]);
        if constexpr (!EVERY) release(tile * kPanels + kPanels - 1);
        const float* columns = column_scale + tile * 128 + lane % 4 * 2;
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                __nv_bfloat16* to = out + (first + m * 64 + h * 8) * n + tile * 128;
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    float2 left = *reinterpret_cast<const float2*>(columns + j * 16), right = *reinterpret_cast<const float2*>(columns + j * 16 + 8);
                    const float* v = &d[m][8 * j + 2 * h];
                    float s = scale[m][h];
                    store_row_16(to + j * 16, pack_bf16(v[0] * s * left.x, v[1] * s * left.y), pack_bf16(v[4] * s * right.x, v[5] * s * right.y), lane);
                }
            }
    }
}

// Random bytes without NaN and with small exponents.
__global__ void tame(uint8_t* data, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) data[i] &= 0xbf;
}

__device__ inline float decode(uint8_t v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3))); }

struct Reference {
    const uint8_t *x, *w;
    const float *row_scale, *column_scale;
    int n;
    __device__ double operator()(size_t i) const {
        size_t row = i / n, column = i % n;
        double sum = 0;
        for (int j = 0; j < kDepth; ++j) sum += double(decode(x[row * kDepth + j])) * double(decode(w[column * kDepth + j]));
        return sum * row_scale[row] * column_scale[column];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int blocks = positive(args, "blocks", 132, 1024), n = positive(args, "n", 8192, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 128 == 0, "--n must be a multiple of 128");
    size_t m = size_t(blocks) * 128;
    uint8_t *x = device_alloc<uint8_t>(m * kDepth), *w = device_alloc<uint8_t>(size_t(n) * kDepth);
    float *row_scale = device_alloc<float>(m), *column_scale = device_alloc<float>(n);
    auto* out = device_alloc<__nv_bfloat16>(m * n);
    fill_uniform(x, m * kDepth, key, 0.0f, 1.0f);
    fill_uniform(w, size_t(n) * kDepth, key + 1, 0.0f, 1.0f);
    tame<<<2048, 256>>>(x, m * kDepth);
    tame<<<2048, 256>>>(w, size_t(n) * kDepth);
    fill_uniform(row_scale, m, key + 2, 0.5f, 1.5f);
    fill_uniform(column_scale, size_t(n), key + 3, 0.5f, 1.5f);
    poison(out, m * n * 2);
    auto map = [](const void* data, size_t count) {
        return hopper::matrix_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, data, count, kDepth, 128, 128, hopper::Swizzle::b128);
    };
    CUtensorMap row_map = map(x, m), weight_map = map(w, size_t(n));
    auto kernel = fix ? stream_weights<false> : stream_weights<true>;
    const size_t shared = size_t(kPanels + kSlots) * kPanel + 1024;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
    auto launch = [&] { kernel<<<blocks, 160, shared>>>(row_map, weight_map, row_scale, column_scale, out, n); };
    launch_once(launch);
    double error = sample_error(out, m * n, Reference{x, w, row_scale, column_scale, n}, 16384);
    return report("faults/p-waits", median_us(launch, reps), 2.0 * double(m) * n * kDepth, 0, error, 1e-2);
}
