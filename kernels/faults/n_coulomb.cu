// Forces of charges on test points by direct summation, tiles of charges in shared memory. `fault` adds every interaction to double
// sums, which converts three floats each time; `fix` adds up a tile in float and converts the tile's sum.
#include "h_harness.cuh"

constexpr int kBlock = 256;

struct Sums {
    double x = 0, y = 0, z = 0;
};

struct Force {
    float x, y, z;
};

__device__ __forceinline__ Force interaction(const float4& point, const float4& charge, float soften) {
    float dx = point.x - charge.x, dy = point.y - charge.y, dz = point.z - charge.z;
    float r = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, soften)))), pull = charge.w * r * r * r;
    return {pull * dx, pull * dy, pull * dz};
}

struct EachInDouble {
    static __device__ __forceinline__ void tile(Sums& sums, const float4& point, const float4* charges, float soften) {
#pragma unroll 8
        for (int j = 0; j < kBlock; ++j) {
            Force f = interaction(point, charges[j], soften);
            sums.x += double(f.x);
            sums.y += double(f.y);
            sums.z += double(f.z);
        }
    }
};

struct TileInFloat {
    static __device__ __forceinline__ void tile(Sums& sums, const float4& point, const float4* charges, float soften) {
        Force part{0, 0, 0};
#pragma unroll 8
        for (int j = 0; j < kBlock; ++j) {
            Force f = interaction(point, charges[j], soften);
            part = {part.x + f.x, part.y + f.y, part.z + f.z};
        }
        sums.x += double(part.x);
        sums.y += double(part.y);
        sums.z += double(part.z);
    }
};

template <class Tile>
__device__ __forceinline__ void all_charges(const float4* __restrict__ points, const float4* __restrict__ charges, double* __restrict__ out,
                                            int n, int m, float soften) {
    __shared__ float4 tile[kBlock];
    int i = blockIdx.x * kBlock + threadIdx.x;
    float4 point = points[min(i, n - 1)];
    Sums sums;
    for (int base = 0; base < m; base += kBlock) {
        tile[threadIdx.x] = charges[base + threadIdx.x];
        __syncthreads();
        Tile::tile(sums, point, tile, soften);
        __syncthreads();
    }
    if (i >= n) return;
    out[i] = sums.x;
    out[size_t(n) + i] = sums.y;
    out[size_t(n) * 2 + i] = sums.z;
}

__global__ void __launch_bounds__(kBlock) coulomb_double(const float4* __restrict__ points, const float4* __restrict__ charges,
                                                         double* __restrict__ out, int n, int m, float soften) {
    all_charges<EachInDouble>(points, charges, out, n, m, soften);
}

__global__ void __launch_bounds__(kBlock) coulomb_tiles(const float4* __restrict__ points, const float4* __restrict__ charges,
                                                        double* __restrict__ out, int n, int m, float soften) {
    all_charges<TileInFloat>(points, charges, out, n, m, soften);
}

__global__ void reference_coulomb(const float4* points, const float4* charges, double* out, int n, int m, double soften, int step) {
    int i = blockIdx.x * step;
    if (i >= n) return;
    double x = 0, y = 0, z = 0;
    for (int j = threadIdx.x; j < m; j += 32) {
        double dx = double(points[i].x) - charges[j].x, dy = double(points[i].y) - charges[j].y, dz = double(points[i].z) - charges[j].z;
        double r2 = dx * dx + dy * dy + dz * dz + soften, pull = charges[j].w / (r2 * sqrt(r2));
        x += pull * dx;
        y += pull * dy;
        z += pull * dz;
    }
    for (int s = 16; s; s >>= 1) {
        x += __shfl_xor_sync(0xffffffffu, x, s);
        y += __shfl_xor_sync(0xffffffffu, y, s);
        z += __shfl_xor_sync(0xffffffffu, z, s);
    }
    if (threadIdx.x) return;
    out[blockIdx.x * 3] = x;
    out[blockIdx.x * 3 + 1] = y;
    out[blockIdx.x * 3 + 2] = z;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "points", 67584, 1 << 22), m = positive(args, "charges", 16384, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % kBlock == 0, "--charges must be a multiple of 256");
    float4 *points = device_alloc<float4>(n), *charges = device_alloc<float4>(m);
    double* out = device_alloc<double>(size_t(n) * 3);
    fill_uniform(reinterpret_cast<float*>(points), size_t(n) * 4, key, 0.0f, 1.0f);
    fill_uniform(reinterpret_cast<float*>(charges), size_t(m) * 4, key + 1, 0.0f, 1.0f);
    poison(out, size_t(n) * 3 * sizeof(double));
    const float soften = 0.0009765625f;
    auto launch = [&] {
        if (fix) coulomb_tiles<<<blocks_for(n, kBlock), kBlock>>>(points, charges, out, n, m, soften);
        else coulomb_double<<<blocks_for(n, kBlock), kBlock>>>(points, charges, out, n, m, soften);
    };
    launch_once(launch);
    int step = n > 4096 ? n / 4096 | 1 : 1, sampled = (n + step - 1) / step;
    double* ref = device_alloc<double>(size_t(sampled) * 3);
    reference_coulomb<<<sampled, 32>>>(points, charges, ref, n, m, soften, step);
    CHECK_CUDA(cudaGetLastError());
    auto got = to_host(out, size_t(n) * 3), want = to_host(ref, size_t(sampled) * 3);
    double difference = 0, norm = 0;
    for (int s = 0; s < sampled; ++s)
        for (int c = 0; c < 3; ++c) {
            double r = want[s * 3 + c], d = got[size_t(n) * c + size_t(s) * step] - r;
            difference += d * d;
            norm += r * r;
        }
    return report("faults/n-coulomb", median_us(launch, reps), 20.0 * n * m, 0, std::sqrt(difference / norm), 1e-4);
}
