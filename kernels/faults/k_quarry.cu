// Adds up the rows of an embedding table that stand in each bag, a bag a warp.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kWidth = 128, kBag = 64;

__global__ void __launch_bounds__(256) bag_sums(const float4* __restrict__ table, const int* __restrict__ bags, float4* __restrict__ out) {
    int lane = threadIdx.x % 32, bag = (blockIdx.x * 256 + threadIdx.x) / 32;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int part = 0; part < kBag; part += 32) {
        int mine = bags[size_t(bag) * kBag + part + lane];
#pragma unroll 8
        for (int k = 0; k < 32; ++k) {
            int row = __shfl_sync(0xffffffffu, mine, k);
            float4 v = table[size_t(row) * 32 + lane];
            sum.x += v.x;
            sum.y += v.y;
            sum.z += v.z;
            sum.w += v.w;
        }
    }
    out[size_t(bag) * 32 + lane] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int rows = positive(args, "rows", 32768, 1 << 24), bags = positive(args, "bags", 33792, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(bags % 8 == 0, "--bags must be a multiple of 8");
    size_t n = size_t(bags) * kWidth;
    float *table = device_alloc<float>(size_t(rows) * kWidth), *out = device_alloc<float>(n);
    int* index = device_alloc<int>(size_t(bags) * kBag);
    fill_uniform(table, size_t(rows) * kWidth, key, -1.0f, 1.0f);
    fill_uniform(index, size_t(bags) * kBag, key + 1, 0.0f, float(rows));
    poison(out, n * sizeof(float));
    auto launch = [&] { bag_sums<<<bags / 8, 256>>>(reinterpret_cast<float4*>(table), index, reinterpret_cast<float4*>(out)); };
    launch_once(launch);
    std::vector<float> values = to_host(table, size_t(rows) * kWidth);
    std::vector<int> from = to_host(index, size_t(bags) * kBag);
    auto wanted = [&](size_t i) {
        double sum = 0;
        for (int k = 0; k < kBag; ++k) sum += values[size_t(from[i / kWidth * kBag + k]) * kWidth + i % kWidth];
        return sum;
    };
    double error = sampled_error(to_host(out, n), wanted, 20000);
    return report("faults/k-quarry", median_us(launch, reps), 0, 4.0 * n * kBag, error, 1e-5);
}
