// Writes a new temperature for each of n cells. `fault` writes it into the cell's record of eight floats, `fix` into an array.
#include "h_harness.cuh"
#include "pair.cuh"

struct Cell {
    float x, y, z, density, pressure, temperature, energy, volume;
};

__host__ __device__ inline float to_kelvin(float heat) { return fmaf(heat, 0.75f, 273.15f); }

__global__ void __launch_bounds__(256) set_field(const float* __restrict__ heat, Cell* __restrict__ cells, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) cells[i].temperature = to_kelvin(heat[i]);
}

__global__ void __launch_bounds__(256) set_array(const float4* __restrict__ heat, float4* __restrict__ temperature, int vectors) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= vectors) return;
    float4 v = heat[i];
    temperature[i] = make_float4(to_kelvin(v.x), to_kelvin(v.y), to_kelvin(v.z), to_kelvin(v.w));
}

// The written floats, `step` floats apart, next to each other.
__global__ void extract(const float* from, float* to, int n, int step) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[size_t(i) * step];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 50331648, 1 << 26);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float *heat = device_alloc<float>(n), *records = device_alloc<float>(size_t(n) * (fix ? 1 : 8));
    fill_uniform(heat, n, key, 0.0f, 100.0f);
    poison(records, size_t(n) * (fix ? 1 : 8) * sizeof(float));
    auto launch = [&] {
        if (fix) set_array<<<blocks_for(n / 4, 256), 256>>>(reinterpret_cast<float4*>(heat), reinterpret_cast<float4*>(records), n / 4);
        else set_field<<<blocks_for(n, 256), 256>>>(heat, reinterpret_cast<Cell*>(records), n);
    };
    launch_once(launch);
    float* written = device_alloc<float>(n);
    extract<<<2112, 256>>>(records + (fix ? 0 : 5), written, n, fix ? 1 : 8);
    CHECK_CUDA(cudaGetLastError());
    std::vector<float> from = to_host(heat, n), got = to_host(written, n);
    double error = sampled_error(got, [&](size_t i) { return to_kelvin(from[i]); }, 2000000);
    return report("faults/k-brand", median_us(launch, reps), 0, 8.0 * n, error, 1e-6);
}
