// First-order filters, y = a y + 1, eight a thread, then a correction by sixteen values read before. Registers are capped for
// eight blocks an SM, so some of the sixteen wait in local memory, outside the loop.
#include "pair.cuh"
constexpr int kFilters = 8, kExtra = 16;

__global__ void __launch_bounds__(256, 8) filters_corrected(const float* a, const float* b, const float* extra, float* y, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float e[kExtra], p[kFilters], v[kFilters];
#pragma unroll
    for (int k = 0; k < kExtra; ++k) asm volatile("ld.global.f32 %0, [%1];" : "=f"(e[k]) : "l"(extra + i + size_t(k) * n));
    // Poles and starting values come as vectors, the latter in swapped pairs: a pole and its value then lie in different register
    // banks, and an FFMA reads both in one cycle.
#pragma unroll
    for (int f = 0; f < kFilters; f += 2) {
        float2 pole = *reinterpret_cast<const float2*>(a + size_t(i) * kFilters + f);
        float2 first = *reinterpret_cast<const float2*>(b + size_t(i) * kFilters + f);
        p[f] = pole.x, p[f + 1] = pole.y, v[f] = first.y, v[f + 1] = first.x;
    }
#pragma unroll 16
    for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int f = 0; f < kFilters; ++f) v[f] = fmaf(p[f], v[f], 1.0f);
    float sum = 0;
#pragma unroll
    for (int f = 0; f < kFilters; ++f) sum += v[f];
#pragma unroll
    for (int k = 0; k < kExtra; ++k) sum = fmaf(sum, 0.5f, e[k]);
    y[i] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = int(args.get("n", 1081344)), steps = int(args.get("steps", 2048)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && steps > 0, "--n and --steps must be positive");
    size_t all = size_t(n) * kFilters;
    float *a = device_alloc<float>(all), *b = device_alloc<float>(all), *extra = device_alloc<float>(size_t(n) * kExtra), *y = device_alloc<float>(n);
    fill_uniform(a, all, key, 0.5f, 0.99f);
    fill_uniform(b, all, key + 1, -1.f, 1.f);
    fill_uniform(extra, size_t(n) * kExtra, key + 2, -1.f, 1.f);
    auto ha = to_host(a, all), hb = to_host(b, all), he = to_host(extra, size_t(n) * kExtra);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int f = 0; f < kFilters; ++f) {
            double v = hb[i * kFilters + (f ^ 1)];
            for (int s = 0; s < steps; ++s) v = v * ha[i * kFilters + f] + 1;
            sum += v;
        }
        for (int k = 0; k < kExtra; ++k) sum = sum * 0.5 + he[i + size_t(k) * n];
        return sum;
    };
    auto launch = [&] { filters_corrected<<<(n + 255) / 256, 256>>>(a, b, extra, y, steps, n); };
    return run_checked("faults/filters-corrected", reps, launch, y, n, reference, 2.0 * all * steps, 4.0 * (2 * all + n * (kExtra + 1.0)), 1e-4);
}
