// Escape time of an unsorted list of points of the complex plane.
#include "h_harness.cuh"

__global__ void escape_time(const float2* __restrict__ point, int* __restrict__ count, int n, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 c = point[i];
    float x = 0, y = 0;
    int it = 0;
    while (it < limit) {
        float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) > 4.0f) break;
        y = __fmaf_rn(__fadd_rn(x, x), y, c.y);
        x = __fadd_rn(__fsub_rn(xx, yy), c.x);
        ++it;
    }
    count[i] = it;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 1500000, 1 << 26), limit = positive(args, "limit", 600, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float* point = device_alloc<float>(size_t(n) * 2);
    int* count = device_alloc<int>(n);
    fill_uniform(point, size_t(n) * 2, key, -1.6f, 1.1f);
    poison(count, size_t(n) * 4);
    auto launch = [&] { escape_time<<<blocks_for(n, 224), 224>>>(reinterpret_cast<float2*>(point), count, n, limit); };
    launch_once(launch);
    std::vector<float> p = to_host(point, size_t(n) * 2);
    std::vector<int> got = to_host(count, n);
    size_t wrong = 0;
    for (int i = 0; i < n; ++i) {
        wrong += got[i] < 0 || got[i] > limit;
        if (i % 16) continue;  // the same steps on the host for a part of the points
        volatile float cx = p[2 * size_t(i)], cy = p[2 * size_t(i) + 1], x = 0, y = 0;
        int it = 0;
        while (it < limit) {
            volatile float xx = x * x, yy = y * y;
            volatile float norm = xx + yy;
            if (norm > 4.0f) break;
            volatile float twice = x + x, difference = xx - yy;
            y = std::fmaf(twice, y, cy);
            x = difference + cx;
            ++it;
        }
        wrong += got[i] != it;
    }
    double us = median_us(launch, reps);
    return report("faults/h-escape", us, 0, 12.0 * n, double(wrong), 0);
}
