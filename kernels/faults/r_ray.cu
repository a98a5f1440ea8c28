// Radiation along rays through the leaves of an adaptive mesh: a warp a ray, a lane a frequency. A leaf's record has the ray's next leaf
// and the row of its opacities; eight polynomials of degree 15 in the opacity, four of absorption and four of emission, give the step.
// `fault` loads all 128 coefficients into registers before the walk, `fix` has them in constant memory, where FFMA takes them from.
#include "h_harness.cuh"

constexpr int kBlock = 128, kSpecies = 8, kTerms = 16, kCoefficients = kSpecies * kTerms;

struct Leaf {
    int next, row;
};

__constant__ float kept[kCoefficients];

template <class C>
__device__ __forceinline__ float polynomial(const C& c, int species, float x) {
    float p = c[species * kTerms + kTerms - 1];
#pragma unroll
    for (int k = kTerms - 2; k >= 0; --k) p = fmaf(p, x, c[species * kTerms + k]);
    return p;
}

template <class C>
__device__ __forceinline__ void walk(const C& c, const Leaf* __restrict__ leaf, const float* __restrict__ opacity,
                                     const int* __restrict__ start, float* __restrict__ out, int rays, int steps) {
    const int ray = (blockIdx.x * kBlock + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (ray >= rays) return;
    int cell = start[ray];
    float intensity = 1;
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        const Leaf here = leaf[cell];
        cell = here.next;
        const float x = opacity[size_t(here.row) * 32 + lane];
        float absorbed = 0, emitted = 0;
#pragma unroll
        for (int k = 0; k < kSpecies / 2; ++k) {
            absorbed += polynomial(c, k, x);
            emitted += polynomial(c, k + kSpecies / 2, x);
        }
        const float through = __expf(-absorbed);
        intensity = fmaf(intensity - emitted, through, emitted);
    }
    out[size_t(ray) * 32 + lane] = intensity;
}

__global__ void __launch_bounds__(kBlock) ray_hoisted(const Leaf* __restrict__ leaf, const float* __restrict__ opacity,
                                                      const int* __restrict__ start, const float* __restrict__ coefficients,
                                                      float* __restrict__ out, int rays, int steps) {
    float c[kCoefficients];
#pragma unroll
    for (int k = 0; k < kCoefficients; ++k) c[k] = coefficients[k];
    walk(c, leaf, opacity, start, out, rays, steps);
}

__global__ void __launch_bounds__(kBlock) ray_constant(const Leaf* __restrict__ leaf, const float* __restrict__ opacity,
                                                       const int* __restrict__ start, float* __restrict__ out, int rays, int steps) {
    walk(kept, leaf, opacity, start, out, rays, steps);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rays = positive(args, "rays", 25344, 1 << 20), steps = positive(args, "steps", 64, 4096);
    int leaves = positive(args, "leaves", 1 << 21, 1 << 25), rows = positive(args, "rows", 1 << 20, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(rays) * 32;
    int *leaf = device_alloc<int>(size_t(leaves) * 2), *start = device_alloc<int>(rays);
    float *opacity = device_alloc<float>(size_t(rows) * 32), *coefficients = device_alloc<float>(kCoefficients);
    float* out = device_alloc<float>(n);
    std::mt19937_64 rng(key);
    std::vector<int> records(size_t(leaves) * 2);
    for (size_t i = 0; i < records.size(); i += 2) {
        records[i] = int(rng() % unsigned(leaves));
        records[i + 1] = int(rng() % unsigned(rows));
    }
    CHECK_CUDA(cudaMemcpy(leaf, records.data(), records.size() * sizeof(int), cudaMemcpyHostToDevice));
    fill_uniform(start, rays, key + 1, 0, float(leaves));
    fill_uniform(opacity, size_t(rows) * 32, key + 2, 0, 1);
    fill_uniform(coefficients, kCoefficients, key + 3, 0, 0.02f);
    CHECK_CUDA(cudaMemcpyToSymbol(kept, coefficients, sizeof kept, 0, cudaMemcpyDeviceToDevice));
    poison(out, n * sizeof(float));
    auto* leaf_records = reinterpret_cast<const Leaf*>(leaf);
    unsigned blocks = blocks_for(n, kBlock);
    auto launch = [&] {
        if (fix) ray_constant<<<blocks, kBlock>>>(leaf_records, opacity, start, out, rays, steps);
        else ray_hoisted<<<blocks, kBlock>>>(leaf_records, opacity, start, coefficients, out, rays, steps);
    };
    launch_once(launch);
    std::vector<float> table = to_host(opacity, size_t(rows) * 32), c = to_host(coefficients, kCoefficients), all = to_host(out, n), got;
    std::vector<int> from = to_host(start, rays);
    std::vector<double> wanted;
    require(std::all_of(all.begin(), all.end(), [](float v) { return std::isfinite(v); }), "an intensity is not finite");
    for (size_t i = 0; i < n; i += std::max<size_t>(1, n / 2000) | 1) {
        double intensity = 1;
        int cell = from[i / 32];
        for (int s = 0; s < steps; ++s) {
            double x = table[size_t(records[size_t(cell) * 2 + 1]) * 32 + i % 32], sum[2] = {0, 0};
            cell = records[size_t(cell) * 2];
            for (int k = 0; k < kSpecies; ++k) {
                double p = 0;
                for (int t = kTerms - 1; t >= 0; --t) p = p * x + c[k * kTerms + t];
                sum[k / (kSpecies / 2)] += p;
            }
            intensity = (intensity - sum[1]) * std::exp(-sum[0]) + sum[1];
        }
        got.push_back(all[i]);
        wanted.push_back(intensity);
    }
    double flops = 2.0 * kCoefficients * double(n) * steps;
    return report("faults/r-ray", median_us(launch, reps), flops, 0, relative_error(got, wanted), 1e-4);
}
