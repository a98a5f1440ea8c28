// Integrates a polynomial of degree 47 by midpoints, one warp a scheduler. `fault`: one point at a time; `fix`: eight.
#include "g_util.cuh"
using namespace held;

constexpr int kDegree = 47;
struct Polynomial { float c[kDegree + 1]; };

template <int AT_ONCE>
__global__ void __launch_bounds__(128) quadrature(const __grid_constant__ Polynomial p, float* out, int points, float step) {
    int thread = blockIdx.x * 128 + threadIdx.x;
    float start = -0.95f + 1.9f * float(thread) / float(gridDim.x * 128), sums[AT_ONCE] = {};
#pragma unroll 1
    for (int i = 0; i < points; i += AT_ONCE) {
        float x[AT_ONCE], y[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            x[u] = fmaf(float(i + u) + 0.5f, step, start);
            y[u] = p.c[kDegree];
        }
#pragma unroll
        for (int d = kDegree - 1; d >= 0; --d)
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u) y[u] = fmaf(y[u], x[u], p.c[d]);
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) sums[u] += y[u];
    }
    float sum = 0;
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u) sum += sums[u];
    out[thread] = sum;
}

__global__ void reference_quadrature(const __grid_constant__ Polynomial p, double* out, int threads, int points, float step) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= threads) return;
    float start = -0.95f + 1.9f * float(thread) / float(threads);
    double sum = 0;
    for (int i = 0; i < points; ++i) {
        double x = double(fmaf(float(i) + 0.5f, step, start)), y = p.c[kDegree];
        for (int d = kDegree - 1; d >= 0; --d) y = y * x + p.c[d];
        sum += y;
    }
    out[thread] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int points = int(args.get("points", 2048));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(points > 0 && points <= 65536 && points % 8 == 0, "--points must be a multiple of 8, at most 65536");
    int device = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    int threads = sms * 128;
    float* out = device_alloc<float>(threads);
    double* ref = device_alloc<double>(threads);
    float* random = device_alloc<float>(kDegree + 1);
    fill_uniform(random, kDegree + 1, s, 0.25f, 1.0f);
    std::vector<float> c = to_host(random, kDegree + 1);
    Polynomial p;
    for (int i = 0; i <= kDegree; ++i) p.c[i] = c[i];
    float step = 1.9f / float(threads) / float(points);
    reference_quadrature<<<(threads + 127) / 128, 128>>>(p, ref, threads, points, step);
    poison(out, size_t(threads) * 4);
    finish();
    auto kernel = fix ? quadrature<8> : quadrature<1>;
    auto launch = [&] { kernel<<<sms, 128>>>(p, out, points, step); };
    launch();
    finish();
    double error = device_error(out, ref, threads);
    return report("faults/g-quadrature", median_us(launch, reps), 2.0 * kDegree * double(points) * threads, 0, error, 1e-3);
}
