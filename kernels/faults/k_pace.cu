// Surface areas of n boxes, each kept as two float4 (low and high corner, spare words), a box a thread.
#include "h_harness.cuh"
#include "pair.cuh"

__global__ void __launch_bounds__(256) box_areas(const float4* __restrict__ corners, float* __restrict__ areas, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float4 low = corners[2 * i], high = corners[2 * i + 1];
    float x = high.x - low.x, y = high.y - low.y, z = high.z - low.z;
    areas[i] = (low.w + high.w) * 2.0f * (x * y + y * z + z * x);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 33554432, 1 << 27);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float *corners = device_alloc<float>(size_t(n) * 8), *areas = device_alloc<float>(n);
    fill_uniform(corners, size_t(n) * 8, key, 0.0f, 1.0f);
    poison(areas, size_t(n) * sizeof(float));
    auto launch = [&] { box_areas<<<blocks_for(n, 256), 256>>>(reinterpret_cast<float4*>(corners), areas, n); };
    launch_once(launch);
    std::vector<float> c = to_host(corners, size_t(n) * 8);
    auto wanted = [&](size_t i) {
        const float* b = &c[i * 8];
        double x = double(b[4]) - b[0], y = double(b[5]) - b[1], z = double(b[6]) - b[2];
        return (double(b[3]) + b[7]) * 2 * (x * y + y * z + z * x);
    };
    double error = sampled_error(to_host(areas, n), wanted, 1000000);
    return report("faults/k-pace", median_us(launch, reps), 0, 36.0 * n, error, 1e-5);
}
