// One pivot step of Floyd-Warshall: d[i][j] = min(d[i][j], column[i] + row[j]), the pivot's row and column copied before.
#include "h_harness.cuh"

__global__ void relax(float4* __restrict__ d, const float* __restrict__ column, const float4* __restrict__ row, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y;
    if (j >= n / 4) return;
    size_t at = size_t(i) * (n / 4) + j;
    float via = column[i];
    float4 v = d[at], r = row[j];
    v.x = fminf(v.x, via + r.x);
    v.y = fminf(v.y, via + r.y);
    v.z = fminf(v.z, via + r.z);
    v.w = fminf(v.w, via + r.w);
    d[at] = v;
}

struct Reference {
    const float *before, *column, *row;
    int n;
    __device__ double operator()(size_t i) const { return fminf(before[i], column[i / n] + row[i % n]); }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 7680, 32768);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    size_t cells = size_t(n) * n;
    float *d = device_alloc<float>(cells), *before = device_alloc<float>(cells);
    float *column = device_alloc<float>(n), *row = device_alloc<float>(n);
    fill_uniform(before, cells, key, 0.0f, 100.0f);
    fill_uniform(column, n, key + 1, 0.0f, 100.0f);
    fill_uniform(row, n, key + 2, 0.0f, 100.0f);
    CHECK_CUDA(cudaMemcpy(d, before, cells * 4, cudaMemcpyDeviceToDevice));
    auto launch = [&] {
        relax<<<dim3(blocks_for(n / 4, 192), n), 192>>>(reinterpret_cast<float4*>(d), column,
                                                        reinterpret_cast<float4*>(row), n);
    };
    launch_once(launch);
    double error = device_error(d, cells, Reference{before, column, row, n});
    double us = median_us(launch, reps);
    return report("faults/h-paths", us, 0, 8.0 * double(cells), error, 0);
}
