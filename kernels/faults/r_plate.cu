// Radiating plates (480 x 640 cells, rims at fixed temperature): red-black Gauss-Seidel with a Newton iteration for the fourth power in
// every cell. A cluster holds a plate in the shared memory of its blocks for all sweeps, a strip of rows each, and the blocks write the
// rows at their edges to their neighbours' shared memory. --cluster: blocks a plate, 10 with 48 rows each or 8 with 60.
#include "h_harness.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int kRows = 480, kWide = 640, kHalf = kWide / 2, kGroups = 3, kThreads = kGroups * kHalf, kNewton = 3;
constexpr float kLoss = 0.05f, kSource = 0.1f;

__device__ __forceinline__ float reciprocal(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// t with 4 t + loss t^4 = wanted, from the last sweep's value.
__device__ __forceinline__ float balance(float t, float wanted) {
#pragma unroll
    for (int k = 0; k < kNewton; ++k) {
        float cube = kLoss * t * t * t;
        t -= fmaf(t, 4.0f + cube, -wanted) * reciprocal(fmaf(4.0f, cube, 4.0f));
    }
    return t;
}

// Place of a cell of column 2 i + (parity) in a strip: rows are split by colour, as (row + column) % 2 says.
__device__ __forceinline__ int place(int row, int colour, int i) { return row * kWide + colour * kHalf + i; }

template <int kCluster>
__global__ void __launch_bounds__(kThreads, 1) relax_plates(const float* __restrict__ in, float* __restrict__ out, int sweeps) {
    constexpr int kStrip = kRows / kCluster, kShare = kStrip / kGroups;
    extern __shared__ __align__(16) float strip[];  // a row of the neighbour's before and after the own
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = int(cluster.block_rank()), first = rank * kStrip, i = threadIdx.x % kHalf, group = threadIdx.x / kHalf;
    const size_t plate = size_t(blockIdx.x / kCluster) * kRows * kWide;
#pragma unroll 8
    for (int q = threadIdx.x; q < (kStrip + 2) * kWide; q += kThreads) {
        const int row = q / kWide, c = q % kWide, at = min(max(first + row - 1, 0), kRows - 1);  // nobody reads beyond the rims
        strip[place(row, (first + row - 1 + c) & 1, c / 2)] = in[plate + size_t(at) * kWide + c];
    }
    float* above = rank > 0 ? cluster.map_shared_rank(strip, rank - 1) : nullptr;
    float* below = rank + 1 < kCluster ? cluster.map_shared_rank(strip, rank + 1) : nullptr;
    cluster.sync();

    for (int s = 0; s < 2 * sweeps; ++s) {
        const int colour = s & 1, other = colour ^ 1;
#pragma unroll 2
        for (int k = 0; k < kShare; ++k) {
            const int row = 1 + group * kShare + k, at = first + row - 1, odd = (at + colour) & 1, column = 2 * i + odd;
            if (at == 0 || at == kRows - 1 || column == 0 || column == kWide - 1) continue;
            const float sides = strip[place(row, other, i)] + strip[place(row, other, odd ? i + 1 : i - 1)];
            const float ends = strip[place(row - 1, other, i)] + strip[place(row + 1, other, i)];
            const float t = balance(strip[place(row, colour, i)], sides + ends + kSource);
            strip[place(row, colour, i)] = t;
            if (row == 1 && above) above[place(kStrip + 1, colour, i)] = t;
            if (row == kStrip && below) below[place(0, colour, i)] = t;
        }
        cluster.sync();
    }
#pragma unroll 4
    for (int q = threadIdx.x; q < kStrip * kWide; q += kThreads) {
        const int row = q / kWide, c = q % kWide, at = first + row;
        out[plate + size_t(at) * kWide + c] = strip[place(row + 1, (at + c) & 1, c / 2)];
    }
}

template <int kCluster>
void launch_plates(const float* in, float* out, int plates, int sweeps) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kCluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(unsigned(plates) * kCluster);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = size_t(kRows / kCluster + 2) * kWide * sizeof(float);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK_CUDA(cudaFuncSetAttribute(relax_plates<kCluster>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(config.dynamicSmemBytes)));
    CHECK_CUDA(cudaFuncSetAttribute(relax_plates<kCluster>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CHECK_CUDA(cudaLaunchKernelEx(&config, relax_plates<kCluster>, in, out, sweeps));
}

// The same sweeps over a whole plate in double.
void reference_plate(std::vector<double>& t, int sweeps) {
    for (int s = 0; s < 2 * sweeps; ++s)
        for (int r = 1; r < kRows - 1; ++r)
            for (int c = 1; c < kWide - 1; ++c) {
                if (((r + c) & 1) != (s & 1)) continue;
                double* at = &t[size_t(r) * kWide + c];
                double wanted = at[-1] + at[1] + at[-kWide] + at[kWide] + kSource, x = *at;
                for (int k = 0; k < kNewton; ++k) {
                    double cube = double(kLoss) * x * x * x;
                    x -= (x * (4 + cube) - wanted) / (4 + 4 * cube);
                }
                *at = x;
            }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int cluster = positive(args, "cluster", 10, 16), plates = positive(args, "plates", 96, 4096);
    int sweeps = positive(args, "sweeps", 24, 1000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(cluster == 10 || cluster == 8, "--cluster must be 10 or 8");
    const size_t cells = size_t(kRows) * kWide, n = cells * plates;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.5f, 2.0f);
    poison(out, n * sizeof(float));
    auto launch = [&] {
        if (cluster == 10) launch_plates<10>(in, out, plates, sweeps);
        else launch_plates<8>(in, out, plates, sweeps);
    };
    launch_once(launch);
    std::vector<float> from = to_host(in, n), all = to_host(out, n), got;
    std::vector<double> wanted;
    require(std::all_of(all.begin(), all.end(), [](float v) { return std::isfinite(v); }), "a temperature is not finite");
    for (int p : {0, plates / 2, plates - 1}) {
        std::vector<double> t(from.begin() + p * cells, from.begin() + (p + 1) * cells);
        reference_plate(t, sweeps);
        wanted.insert(wanted.end(), t.begin(), t.end());
        got.insert(got.end(), all.begin() + p * cells, all.begin() + (p + 1) * cells);
    }
    double flops = 40.0 * double(n) * sweeps;
    return report("faults/r-plate", median_us(launch, reps), flops, 0, relative_error(got, wanted), 1e-4);
}
