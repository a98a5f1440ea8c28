// Exponential moving average along each row of a table, a row a block. `fault` runs the recurrence of a tile in one thread,
// `fix` as a scan.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kBlock = 256, kTile = 4 * kBlock;

__global__ void __launch_bounds__(kBlock) average(const float4* __restrict__ in, float4* __restrict__ out, int length, float keep) {
    __shared__ float tile[kTile];
    int t = threadIdx.x;
    const float4* row = in + size_t(blockIdx.x) * (length / 4);
    float4* to = out + size_t(blockIdx.x) * (length / 4);
    float y = 0;
    for (int base = 0; base < length / 4; base += kBlock) {
        reinterpret_cast<float4*>(tile)[t] = row[base + t];
        __syncthreads();
        if (t == 0) {
#pragma unroll 16
            for (int k = 0; k < kTile; ++k) {
                y = fmaf(keep, y, (1.0f - keep) * tile[k]);
                tile[k] = y;
            }
        }
        __syncthreads();
        to[base + t] = reinterpret_cast<float4*>(tile)[t];
    }
}

__global__ void __launch_bounds__(kBlock) average_scan(const float4* __restrict__ in, float4* __restrict__ out, int length, float keep) {
    __shared__ float ends[2][8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const float4* row = in + size_t(blockIdx.x) * (length / 4);
    float4* to = out + size_t(blockIdx.x) * (length / 4);
    float take = 1.0f - keep, k4 = keep * keep * keep * keep, mine = 1, powers[5], k128 = k4;
#pragma unroll
    for (int s = 0; s < 5; ++s) {
        powers[s] = k128;  // keep^(4 * 2^s)
        if (lane >> s & 1) mine *= k128;
        k128 *= k128;
    }
    float carry = 0;
    float4 v = row[t];
    for (int base = 0, turn = 0; base < length / 4; base += kBlock, turn ^= 1) {
        float4 ahead = make_float4(0, 0, 0, 0);
        if (base + kBlock < length / 4) ahead = row[base + kBlock + t];
        float end = take * fmaf(keep, fmaf(keep, fmaf(keep, v.x, v.y), v.z), v.w);
#pragma unroll
        for (int s = 0; s < 5; ++s) {
            float before = __shfl_up_sync(0xffffffffu, end, 1 << s);
            if (lane >= 1 << s) end = fmaf(powers[s], before, end);
        }
        float before = __shfl_up_sync(0xffffffffu, end, 1);
        if (lane == 0) before = 0;
        if (lane == 31) ends[turn][warp] = end;
        __syncthreads();
        float at = carry, mine_in = 0;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
            if (w == warp) mine_in = at;
            at = fmaf(k128, at, ends[turn][w]);
        }
        carry = at;
        float y = fmaf(mine, mine_in, before);
        float4 r;
        r.x = y = fmaf(keep, y, take * v.x);
        r.y = y = fmaf(keep, y, take * v.y);
        r.z = y = fmaf(keep, y, take * v.z);
        r.w = y = fmaf(keep, y, take * v.w);
        to[base + t] = r;
        v = ahead;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 6336, 1 << 20), length = positive(args, "length", 8192, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(length % kTile == 0, "--length must be a multiple of 1024");
    size_t n = size_t(rows) * length;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.0f, 2.0f);
    poison(out, n * sizeof(float));
    float keep = 0.96875f;
    auto kernel = fix ? average_scan : average;
    auto launch = [&] { kernel<<<rows, kBlock>>>(reinterpret_cast<float4*>(in), reinterpret_cast<float4*>(out), length, keep); };
    launch_once(launch);
    std::vector<float> from = to_host(in, n);
    // Older than 2000 places counts less than 1e-27.
    auto wanted = [&](size_t i) {
        size_t start = std::max(i / length * length, i < 2000 ? 0 : i - 2000);
        double y = 0;
        for (size_t k = start; k <= i; ++k) y = double(keep) * y + (1 - double(keep)) * from[k];
        return y;
    };
    double error = sampled_error(to_host(out, n), wanted, 20000);
    return report("faults/k-bell", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
