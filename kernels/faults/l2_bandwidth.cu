// Sums rows of 512 bytes, chosen at random from a table that L2 holds and L1 and shared memory cannot.
#include "memory.cuh"

constexpr int WIDTH = 128, PICKS = 64;

__global__ void __launch_bounds__(256) sum_rows(const float4* __restrict__ table, const int* __restrict__ picks,
                                                float4* __restrict__ out) {
    int lane = threadIdx.x % 32;
    size_t bag = size_t(blockIdx.x) * 8 + threadIdx.x / 32;
    int low = picks[bag * PICKS + lane], high = picks[bag * PICKS + 32 + lane];
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int k = 0; k < PICKS; ++k) {
        int row = __shfl_sync(~0u, k < 32 ? low : high, k % 32);
        float4 v = table[size_t(row) * (WIDTH / 4) + lane];
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
    }
    out[bag * (WIDTH / 4) + lane] = total;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int r = repeats(args);
    auto s = seed(args);
    size_t bags = size_arg(args, "bags", 65536, 8), rows = size_arg(args, "rows", 32768);
    args.done();
    auto table = device_alloc<float>(rows * WIDTH), out = device_alloc<float>(bags * WIDTH);
    auto picks = device_alloc<int>(bags * PICKS);
    fill_uniform(table, rows * WIDTH, s, 0, 1);
    fill_uniform(picks, bags * PICKS, s + 1, 0, float(rows));
    poison(out, bags * WIDTH * 4);
    auto launch = [&] {
        sum_rows<<<unsigned(bags / 8), 256>>>(reinterpret_cast<float4*>(table), picks, reinterpret_cast<float4*>(out));
    };
    run_once(launch);
    auto t = to_host(table, rows * WIDTH);
    auto p = to_host(picks, bags * PICKS);
    std::vector<double> ref(bags * WIDTH);
    for (size_t i = 0; i < bags * PICKS; ++i)
        for (int c = 0; c < WIDTH; ++c) ref[i / PICKS * WIDTH + c] += t[size_t(p[i]) * WIDTH + c];
    double error = relative_error(to_host(out, bags * WIDTH), ref);
    return report("faults/table-rows", median_us(launch, r), 0, 4.0 * WIDTH * bags * (PICKS + 1) + 4.0 * bags * PICKS,
                  error, 1e-5);
}
