// For every point i of the plane: how many of the points before it lie within a radius.
#include "h_harness.cuh"

__device__ bool near(float x, float y, float2 me, float square) {
    float dx = __fsub_rn(x, me.x), dy = __fsub_rn(y, me.y);
    return __fmaf_rn(dx, dx, __fmul_rn(dy, dy)) < square;
}

__device__ int count_before(const float2* __restrict__ point, int i, float square) {
    float2 me = point[i];
    const float4* two = reinterpret_cast<const float4*>(point);
    int count = 0;
#pragma unroll 4
    for (int j = 0; j < i / 2; ++j) {
        float4 p = two[j];
        count += near(p.x, p.y, me, square);
        count += near(p.z, p.w, me, square);
    }
    if (i % 2) count += near(point[i - 1].x, point[i - 1].y, me, square);
    return count;
}

__global__ void __launch_bounds__(512) pair_count(const float2* __restrict__ point, int* __restrict__ count, int n,
                                                  float square) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) count[i] = count_before(point, i, square);
}

// A thread takes one point from the front and its mirror from the back.
__global__ void __launch_bounds__(128) pair_count_mirror(const float2* __restrict__ point, int* __restrict__ count, int n,
                                                         float square) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2) return;
    count[i] = count_before(point, i, square);
    count[n - 1 - i] = count_before(point, n - 1 - i, square);
}

struct Reference {
    const float2* point;
    float square;
    __device__ double operator()(size_t i) const {
        int count = 0;
        for (size_t j = 0; j < i; ++j) count += near(point[j].x, point[j].y, point[i], square);
        return count;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67584, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 2 == 0, "--n must be even");
    float* point = device_alloc<float>(size_t(n) * 2);
    int* count = device_alloc<int>(n);
    fill_uniform(point, size_t(n) * 2, key, 0.0f, 1.0f);
    poison(count, size_t(n) * 4);
    const float square = 0.002f;
    auto points = reinterpret_cast<float2*>(point);
    auto launch = [&] {
        if (fix) pair_count_mirror<<<blocks_for(n / 2, 128), 128>>>(points, count, n, square);
        else pair_count<<<blocks_for(n, 512), 512>>>(points, count, n, square);
    };
    launch_once(launch);
    double error = device_error(count, n, Reference{points, square});
    double us = median_us(launch, reps);
    return report("faults/h-paircount", us, 3.0 * n * double(n), 0, error, 0);
}
