// Damped springs, float data, many time steps each; the constants are doubles in one kernel and floats in the other.
#include "pair.cuh"

__global__ void spring_plain(float* out, const float* x, const float* k, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float p = x[i], v = 0, w = k[i];
    for (int s = 0; s < steps; ++s) {
        v = v * 0.999 - w * p * 0.01;
        p = p + v * 0.01;
    }
    out[i] = p;
}

__global__ void spring_suffixed(float* out, const float* x, const float* k, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float p = x[i], v = 0, w = k[i];
    for (int s = 0; s < steps; ++s) {
        v = v * 0.999f - w * p * 0.01f;
        p = p + v * 0.01f;
    }
    out[i] = p;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int steps = int(args.get("steps", 256)), n = int(args.get("n", 4194304)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(steps > 0 && n > 0, "--steps and --n must be positive");
    float *x = device_alloc<float>(n), *k = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(x, n, key, -1.f, 1.f);
    fill_uniform(k, n, key + 1, 0.5f, 2.f);
    auto hx = to_host(x, n), hk = to_host(k, n);
    auto reference = [&](size_t i) {
        double p = hx[i], v = 0, w = hk[i];
        for (int s = 0; s < steps; ++s) v = v * 0.999 - w * p * 0.01, p += v * 0.01;
        return p;
    };
    auto launch = [&] {
        if (fault) spring_plain<<<(n + 255) / 256, 256>>>(out, x, k, steps, n);
        else spring_suffixed<<<(n + 255) / 256, 256>>>(out, x, k, steps, n);
    };
    return run_checked(fault ? "faults/spring-plain" : "faults/spring-suffixed", reps, launch, out, n, reference,
                       7.0 * n * steps, 12.0 * n, 1e-4);
}
