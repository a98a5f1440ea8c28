// Colours a 16-bit image by a palette of 2048 entries. `fault` keeps the palette in constant memory, `fix` in shared.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kColours = 2048;
__constant__ unsigned cPalette[kColours];

__global__ void __launch_bounds__(256) colour(const uint2* __restrict__ in, uint4* __restrict__ out, int groups) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < groups; i += gridDim.x * 256) {
        uint2 v = in[i];
        out[i] = make_uint4(cPalette[v.x & 2047], cPalette[v.x >> 16 & 2047], cPalette[v.y & 2047], cPalette[v.y >> 16 & 2047]);
    }
}

__global__ void __launch_bounds__(256) colour_staged(const uint2* __restrict__ in, uint4* __restrict__ out, int groups, const unsigned* __restrict__ palette) {
    __shared__ unsigned local[kColours];
    for (int k = threadIdx.x; k < kColours; k += 256) local[k] = palette[k];
    __syncthreads();
    int stride = gridDim.x * 256;
#pragma unroll 4
    for (int i = blockIdx.x * 256 + threadIdx.x; i < groups; i += stride) {
        uint2 v = in[i];
        out[i] = make_uint4(local[v.x & 2047], local[v.x >> 16 & 2047], local[v.y & 2047], local[v.y >> 16 & 2047]);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    uint8_t* in = device_alloc<uint8_t>(size_t(n) * 2);
    unsigned *out = device_alloc<unsigned>(n), *palette = device_alloc<unsigned>(kColours);
    std::vector<unsigned> colours(kColours);
    for (int k = 0; k < kColours; ++k) colours[k] = unsigned(diagnose_hash(key + 9 + k));
    CHECK_CUDA(cudaMemcpyToSymbol(cPalette, colours.data(), kColours * 4));
    CHECK_CUDA(cudaMemcpy(palette, colours.data(), kColours * 4, cudaMemcpyHostToDevice));
    fill_uniform(in, size_t(n) * 2, key, 0.f, 1.f);
    poison(out, size_t(n) * 4);
    auto *from = reinterpret_cast<const uint2*>(in);
    auto *to = reinterpret_cast<uint4*>(out);
    auto launch = [&] {
        if (fix) colour_staged<<<1056, 256>>>(from, to, n / 4, palette);
        else colour<<<1056, 256>>>(from, to, n / 4);
    };
    launch_once(launch);
    std::vector<uint8_t> bytes = to_host(in, size_t(n) * 2);
    auto wanted = [&](size_t i) { return colours[(bytes[2 * i] | bytes[2 * i + 1] << 8) & 2047]; };
    double error = sampled_error(to_host(out, n), wanted, 2000000);
    return report("faults/k-chart", median_us(launch, reps), 0, 6.0 * n, error, 0);
}
