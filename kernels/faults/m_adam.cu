// One Adam step, functional style (new parameters and moments are written to their own arrays). `fault` is the textbook formula
// with the hyperparameters as they come from a Python binding; `fix` gets its bias corrections from the host.
#include "h_harness.cuh"

__global__ void __launch_bounds__(256) adam_step(const float* __restrict__ p, const float* __restrict__ g, const float* __restrict__ m,
                                                 const float* __restrict__ v, float* __restrict__ p1, float* __restrict__ m1,
                                                 float* __restrict__ v1, size_t n, double lr, double beta1, double beta2, double eps,
                                                 int step) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float first = beta1 * m[i] + (1.0 - beta1) * g[i];
    float second = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
    float first_hat = first / (1.0 - pow(beta1, double(step)));
    float second_hat = second / (1.0 - pow(beta2, double(step)));
    p1[i] = p[i] - lr * first_hat / (sqrt(second_hat) + eps);
    m1[i] = first;
    v1[i] = second;
}

struct Step {
    float beta1, beta2, rate, correction, eps;
};

__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const Step& s) {
    m = s.beta1 * m + (1.0f - s.beta1) * g;
    v = s.beta2 * v + (1.0f - s.beta2) * g * g;
    p -= s.rate * __fdividef(m, sqrtf(v * s.correction) + s.eps);
}

__global__ void __launch_bounds__(256) adam_step_vector(const float4* __restrict__ p, const float4* __restrict__ g,
                                                        const float4* __restrict__ m, const float4* __restrict__ v,
                                                        float4* __restrict__ p1, float4* __restrict__ m1, float4* __restrict__ v1,
                                                        size_t n, Step s) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = p[i], b = g[i], c = m[i], d = v[i];
    update(a.x, b.x, c.x, d.x, s);
    update(a.y, b.y, c.y, d.y, s);
    update(a.z, b.z, c.z, d.z, s);
    update(a.w, b.w, c.w, d.w, s);
    p1[i] = a;
    m1[i] = c;
    v1[i] = d;
}

constexpr double kRate = 1e-2, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;

struct Reference {
    const float *p, *g, *m, *v;
    int step, which;
    __device__ double operator()(size_t i) const {
        double a = kBeta1 * m[i] + (1 - kBeta1) * g[i], b = kBeta2 * v[i] + (1 - kBeta2) * double(g[i]) * g[i];
        if (which == 1) return a;
        if (which == 2) return b;
        double ah = a / (1 - pow(kBeta1, double(step))), bh = b / (1 - pow(kBeta2, double(step)));
        return p[i] - kRate * ah / (sqrt(bh) + kEps);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    size_t n = size_t(positive(args, "n", 33554432, 1ll << 29));
    int step = positive(args, "step", 17, 100000);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    float* x[7];
    for (auto& array : x) array = device_alloc<float>(n);
    fill_uniform(x[0], n, key, -1.0f, 1.0f);
    fill_uniform(x[1], n, key + 1, -0.1f, 0.1f);
    fill_uniform(x[2], n, key + 2, -0.1f, 0.1f);
    fill_uniform(x[3], n, key + 3, 0.001f, 0.01f);
    for (int i = 4; i < 7; ++i) poison(x[i], n * sizeof(float));
    auto launch = [&] {
        if (fix) {
            double c1 = 1 - std::pow(kBeta1, step), c2 = 1 - std::pow(kBeta2, step);
            Step s{float(kBeta1), float(kBeta2), float(kRate / c1), float(1 / c2), float(kEps)};
            auto vector = [&](int i) { return reinterpret_cast<float4*>(x[i]); };
            adam_step_vector<<<blocks_for(n / 4, 256), 256>>>(vector(0), vector(1), vector(2), vector(3), vector(4), vector(5),
                                                              vector(6), n / 4, s);
        } else {
            adam_step<<<blocks_for(n, 256), 256>>>(x[0], x[1], x[2], x[3], x[4], x[5], x[6], n, kRate, kBeta1, kBeta2, kEps, step);
        }
    };
    launch_once(launch);
    double error = 0;
    for (int which = 0; which < 3; ++which) {
        double e = device_error(x[4 + which], n, Reference{x[0], x[1], x[2], x[3], step, which});
        if (!(e <= error)) error = e;
    }
    return report("faults/m-adam", median_us(launch, reps), 0, 28.0 * double(n), error, 1e-5);
}
