// Fog over a rendered picture: the opacity of each pixel from its depth. `fault` sets the fourth byte of RGBA pixels (the warp's
// stores look dense: 4 sectors a request), `fix` writes a plane of its own.
#include "h_harness.cuh"

struct Fog {
    float density, start;
};

__device__ __forceinline__ uint8_t opacity(float depth, Fog fog) {
    float t = fmaxf(depth - fog.start, 0.0f) * fog.density;
    return uint8_t(__float2int_rn(255.0f * (1.0f - __expf(-t * t))));
}

// Four pixels a thread, 256 apart.
__global__ void __launch_bounds__(256) fog_rgba(const float* __restrict__ depth, uchar4* __restrict__ image, int n, Fog fog) {
    int first = blockIdx.x * 1024 + threadIdx.x;
    float z[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) z[p] = first + 256 * p < n ? depth[first + 256 * p] : 0.0f;
#pragma unroll
    for (int p = 0; p < 4; ++p)
        if (first + 256 * p < n) image[first + 256 * p].w = opacity(z[p], fog);
}

__global__ void __launch_bounds__(256) fog_plane(const float4* __restrict__ depth, uchar4* __restrict__ plane, int quads, Fog fog) {
    int q = blockIdx.x * 256 + threadIdx.x;
    if (q >= quads) return;
    float4 z = depth[q];
    plane[q] = make_uchar4(opacity(z.x, fog), opacity(z.y, fog), opacity(z.z, fog), opacity(z.w, fog));
}

__global__ void take_alpha(const uint8_t* from, uint8_t* to, size_t n, int step, int offset) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) to[i] = from[i * step + offset];
}

struct Reference {
    const float* depth;
    Fog fog;
    __device__ double operator()(size_t i) const {
        double t = fmax(double(depth[i]) - double(fog.start), 0.0) * double(fog.density);
        return rint(255.0 * (1.0 - exp(-t * t)));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 134217728, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    size_t bytes = size_t(n) * (fix ? 1 : 4);
    float* depth = device_alloc<float>(n);
    uint8_t *image = device_alloc<uint8_t>(bytes), *alpha = device_alloc<uint8_t>(n);
    fill_uniform(depth, n, key, 0.0f, 200.0f);
    poison(image, bytes);
    Fog fog{0.0125f, 10.0f};
    auto launch = [&] {
        auto* z = reinterpret_cast<const float4*>(depth);
        auto* out = reinterpret_cast<uchar4*>(image);
        if (fix) fog_plane<<<blocks_for(n / 4, 256), 256>>>(z, out, n / 4, fog);
        else fog_rgba<<<blocks_for(n / 4, 256), 256>>>(depth, out, n, fog);
    };
    launch_once(launch);
    take_alpha<<<2112, 256>>>(image, alpha, n, fix ? 1 : 4, fix ? 0 : 3);
    CHECK_CUDA(cudaGetLastError());
    double error = device_error(alpha, n, Reference{depth, fog});
    return report("faults/n-fog", median_us(launch, reps), 0, 5.0 * double(n), error, 2e-3);
}
