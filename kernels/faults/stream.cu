// A long array streamed through shared memory by bulk copies: one thread feeds, 256 threads use, one block an SM, with one
// buffer or four.
#include "tensor.cuh"
constexpr int kTile = 4096, kUsers = 256;  // floats a tile

__device__ __forceinline__ float curve(float x) {
    float p = x;
#pragma unroll
    for (int k = 0; k < 6; ++k) p = fmaf(p, x, 0.25f);
    return p;
}

template <int S>
__device__ void stream(const float* in, float* out, int tiles) {
    extern __shared__ __align__(128) float shared[];
    __shared__ uint64_t full[S], empty[S];
    if (threadIdx.x == 0) {
        for (int s = 0; s < S; ++s) bar_init(&full[s], 1), bar_init(&empty[s], kUsers);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= kUsers) {
        if (threadIdx.x == kUsers)
            for (int tile = blockIdx.x, i = 0; tile < tiles; tile += gridDim.x, ++i) {
                int s = i % S;
                if (i >= S) bar_wait(&empty[s], (i / S - 1) & 1);
                bar_expect(&full[s], kTile * 4);
                bulk_load(shared + s * kTile, in + size_t(tile) * kTile, kTile * 4, &full[s]);
            }
        return;
    }
    for (int tile = blockIdx.x, i = 0; tile < tiles; tile += gridDim.x, ++i) {
        int s = i % S;
        bar_wait(&full[s], (i / S) & 1);
        float4* from = reinterpret_cast<float4*>(shared + s * kTile);
        float4* to = reinterpret_cast<float4*>(out + size_t(tile) * kTile);
#pragma unroll
        for (int j = 0; j < kTile / 4 / kUsers; ++j) {
            float4 v = from[threadIdx.x + j * kUsers];
            to[threadIdx.x + j * kUsers] = make_float4(curve(v.x), curve(v.y), curve(v.z), curve(v.w));
        }
        bar_arrive(&empty[s]);
    }
}
__global__ void __launch_bounds__(kUsers + 32) stream_single(const float* in, float* out, int tiles) { stream<1>(in, out, tiles); }
__global__ void __launch_bounds__(kUsers + 32) stream_fourfold(const float* in, float* out, int tiles) { stream<4>(in, out, tiles); }

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int tiles = int(args.get("tiles", 16384)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(tiles > 0, "--tiles must be positive");
    size_t n = size_t(tiles) * kTile;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.f, 1.f);
    auto hi = to_host(in, n);
    auto reference = [&](size_t i) {
        double x = hi[i], p = x;
        for (int k = 0; k < 6; ++k) p = p * x + 0.25;
        return p;
    };
    allow_smem(stream_fourfold, 4 * kTile * 4);
    int blocks = std::min(sm_count(), tiles);
    auto launch = [&] {
        if (fault) stream_single<<<blocks, kUsers + 32, kTile * 4>>>(in, out, tiles);
        else stream_fourfold<<<blocks, kUsers + 32, 4 * kTile * 4>>>(in, out, tiles);
    };
    return run_checked(fault ? "faults/stream-single" : "faults/stream-fourfold", reps, launch, out, n, reference, 12.0 * n, 8.0 * n, 1e-5, 65536);
}
