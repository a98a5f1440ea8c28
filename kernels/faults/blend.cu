// z = x + s y, sixteen bytes a thread, full occupancy: warps wait for memory, as they must when memory is the limit.
#include "pair.cuh"

__global__ void __launch_bounds__(256) blend(const float4* x, const float4* y, float4* z, float s, size_t n) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = x[i], b = y[i];
    z[i] = make_float4(fmaf(s, b.x, a.x), fmaf(s, b.y, a.y), fmaf(s, b.z, a.z), fmaf(s, b.w, a.w));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    long long n = args.get("n", 16777216);
    int reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && n <= (1ll << 30), "--n must be between 1 and 2^30");
    size_t count = 4 * size_t(n);
    float *x = device_alloc<float>(count), *y = device_alloc<float>(count), *z = device_alloc<float>(count);
    fill_uniform(x, count, key, -1.f, 1.f);
    fill_uniform(y, count, key + 1, -1.f, 1.f);
    auto hx = to_host(x, count), hy = to_host(y, count);
    auto launch = [&] { blend<<<unsigned((n + 255) / 256), 256>>>((const float4*)x, (const float4*)y, (float4*)z, 0.75f, size_t(n)); };
    return run_checked("faults/blend", reps, launch, z, count, [&](size_t i) { return hx[i] + 0.75 * hy[i]; }, 8.0 * n, 48.0 * n, 1e-6, 1 << 20);
}
