// Distance (sum of |x - t|) of rows of 32 values to 32 templates, one a lane: each value reaches the other lanes by a
// shuffle, or four at a time as a broadcast from shared memory.
#include "memory.cuh"

// 32 shuffles for 64 additions: the load/store unit takes one a cycle, the adders two.
__global__ void __launch_bounds__(256, 4) distance_lanes(const float* __restrict__ rows,
                                                         const float* __restrict__ templates, float* __restrict__ out,
                                                         unsigned count) {
    unsigned lane = threadIdx.x % 32, warp = blockIdx.x * 8 + threadIdx.x / 32, warps = gridDim.x * 8;
    float tmpl[32], total[2] = {};
#pragma unroll
    for (int j = 0; j < 32; ++j) tmpl[j] = templates[j * 32 + lane];
    float next = warp < count ? rows[size_t(warp) * 32 + lane] : 0;
    for (unsigned row = warp; row < count; row += warps) {
        float x = next;
        if (row + warps < count) next = rows[size_t(row + warps) * 32 + lane];
#pragma unroll
        for (int j = 0; j < 32; ++j) total[j % 2] += fabsf(__shfl_sync(~0u, x, j) - tmpl[j]);
    }
    out[warp * 32 + lane] = total[0] + total[1];
}

__global__ void __launch_bounds__(256, 4) distance_quads(const float* __restrict__ rows,
                                                         const float* __restrict__ templates, float* __restrict__ out,
                                                         unsigned count) {
    __shared__ __align__(16) float slots[8][2][32];  // two a warp, used in turn: one __syncwarp a row is enough
    unsigned lane = threadIdx.x % 32, warp = blockIdx.x * 8 + threadIdx.x / 32, warps = gridDim.x * 8, turn = 0;
    float tmpl[32], total[2] = {};
#pragma unroll
    for (int j = 0; j < 32; ++j) tmpl[j] = templates[j * 32 + lane];
    float next = warp < count ? rows[size_t(warp) * 32 + lane] : 0;
    for (unsigned row = warp; row < count; row += warps, turn ^= 1) {
        float* slot = slots[threadIdx.x / 32][turn];
        slot[lane] = next;
        __syncwarp();
        if (row + warps < count) next = rows[size_t(row + warps) * 32 + lane];
#pragma unroll
        for (int j = 0; j < 32; j += 4) {
            float4 v = *reinterpret_cast<const float4*>(slot + j);
            total[0] += fabsf(v.x - tmpl[j]);
            total[1] += fabsf(v.y - tmpl[j + 1]);
            total[0] += fabsf(v.z - tmpl[j + 2]);
            total[1] += fabsf(v.w - tmpl[j + 3]);
        }
    }
    out[warp * 32 + lane] = total[0] + total[1];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t rows = size_arg(args, "rows", 2 << 20);
    args.done();
    unsigned blocks = sm_count() * 4, lanes = blocks * 256;
    auto data = device_alloc<float>(rows * 32), templates = device_alloc<float>(1024), out = device_alloc<float>(lanes);
    fill_uniform(data, rows * 32, s, 0, 1);
    fill_uniform(templates, 1024, s + 1, 0, 1);
    poison(out, lanes * 4);
    auto launch = [&] {
        if (fault) distance_lanes<<<blocks, 256>>>(data, templates, out, unsigned(rows));
        else distance_quads<<<blocks, 256>>>(data, templates, out, unsigned(rows));
    };
    run_once(launch);
    auto x = to_host(data, rows * 32), t = to_host(templates, 1024), parts = to_host(out, lanes);
    std::vector<double> ref(32), sums(32);
    for (size_t i = 0; i < rows * 32; ++i)
        for (int k = 0; k < 32; ++k) ref[k] += std::fabs(double(x[i]) - double(t[i % 32 * 32 + k]));
    for (size_t i = 0; i < lanes; ++i) sums[i % 32] += parts[i];
    std::vector<float> got(sums.begin(), sums.end());
    return report(fault ? "faults/distance-lanes" : "faults/distance-quads", median_us(launch, r), 2048.0 * rows,
                  128.0 * rows, relative_error(got, ref), 1e-5);
}
