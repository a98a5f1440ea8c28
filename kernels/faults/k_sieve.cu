// Keeps the values above a threshold, in any order. `fault` takes a place a value, `fix` a place a block's 4096 values.
#include "h_harness.cuh"

__global__ void __launch_bounds__(256) keep(const unsigned* __restrict__ in, unsigned* __restrict__ out, unsigned* count, int n, unsigned above) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    unsigned v = in[i];
    if (v > above) out[atomicAdd(count, 1u)] = v;
}

__global__ void __launch_bounds__(256) keep_batch(const uint4* __restrict__ in, unsigned* __restrict__ out, unsigned* count, unsigned above) {
    __shared__ unsigned stage[4096], warps[8], base;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = in[size_t(blockIdx.x) * 1024 + k * 256 + t];
    unsigned mine = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) mine += (v[k].x > above) + (v[k].y > above) + (v[k].z > above) + (v[k].w > above);
    unsigned sum = mine;
#pragma unroll
    for (int s = 1; s < 32; s <<= 1) {
        unsigned o = __shfl_up_sync(0xffffffffu, sum, s);
        if (lane >= s) sum += o;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    unsigned at = sum - mine, total = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        if (w < warp) at += warps[w];
        total += warps[w];
    }
    if (t == 0) base = atomicAdd(count, total);
    auto put = [&](unsigned value) {
        if (value > above) stage[at++] = value;
    };
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        put(v[k].x);
        put(v[k].y);
        put(v[k].z);
        put(v[k].w);
    }
    __syncthreads();
    for (unsigned k = t; k < total; k += 256) out[base + k] = stage[k];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4096 == 0, "--n must be a multiple of 4096");
    unsigned above = 0x80000000u;
    unsigned *in = device_alloc<unsigned>(n), *out = device_alloc<unsigned>(n), *count = device_alloc<unsigned>(1);
    fill_uniform(reinterpret_cast<uint8_t*>(in), size_t(n) * 4, key, 0.f, 1.f);
    poison(out, size_t(n) * 4);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(count, 0, sizeof(unsigned)));
        if (fix) keep_batch<<<n / 4096, 256>>>(reinterpret_cast<uint4*>(in), out, count, above);
        else keep<<<n / 256, 256>>>(in, out, count, n, above);
    };
    launch_once(launch);
    std::vector<unsigned> from = to_host(in, n), got = to_host(out, n);
    size_t kept = to_host(count, 1)[0], want = 0, wrong = 0;
    unsigned long long sum = 0, mix = 0;
    for (unsigned v : from)
        if (v > above) {
            ++want;
            sum += v;
            mix += v * 0x9e3779b97f4a7c15ull >> 20;
        }
    require(kept <= size_t(n), "too many values kept");
    for (size_t i = 0; i < kept; ++i) {
        wrong += got[i] <= above;
        sum -= got[i];
        mix -= got[i] * 0x9e3779b97f4a7c15ull >> 20;
    }
    double error = double(wrong) + (kept != want) + (sum != 0) + (mix != 0);
    return report("faults/k-sieve", median_us(launch, reps), 0, 4.0 * (double(n) + double(want)), error, 0);
}
