// Orbits z <- z z + c inside the main cardioid, a fixed number of steps, two points a thread: multiply-adds and nothing else.
#include "pair.cuh"

template <class T>
__global__ void __launch_bounds__(256) orbit(const T* c, T* out, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, half = n / 2;
    if (i >= half) return;
    T x0 = c[i], y0 = c[i + n], x1 = c[i + half], y1 = c[i + n + half];
    T a0 = 0, b0 = 0, a1 = 0, b1 = 0;
#pragma unroll 8
    for (int s = 0; s < steps; ++s) {
        T t0 = a0 + a0, t1 = a1 + a1;
        T u0 = fma(-b0, b0, x0), u1 = fma(-b1, b1, x1);
        b0 = fma(t0, b0, y0), b1 = fma(t1, b1, y1);
        a0 = fma(a0, a0, u0), a1 = fma(a1, a1, u1);
    }
    out[i] = a0 + b0;
    out[i + half] = a1 + b1;
}

template <class T>
int run(const char* name, int steps, int n, int reps, unsigned long long key, double tolerance) {
    T *c = device_alloc<T>(2 * size_t(n)), *out = device_alloc<T>(n);
    fill_uniform(c, 2 * size_t(n), key, -0.17f, 0.17f);
    auto hc = to_host(c, 2 * size_t(n));
    auto reference = [&](size_t i) {
        double a = 0, b = 0, x = hc[i], y = hc[i + n];
        for (int s = 0; s < steps; ++s) {
            double t = a * a - b * b + x;
            b = 2 * a * b + y, a = t;
        }
        return a + b;
    };
    auto launch = [&] { orbit<T><<<(n / 2 + 255) / 256, 256>>>(c, out, steps, n); };
    return run_checked(name, reps, launch, out, n, reference, 7.0 * n * steps, 3.0 * sizeof(T) * n, tolerance);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string type = args.get_str("type", "float");
    int steps = int(args.get("steps", 1024)), n = int(args.get("n", 4194304)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(type == "float" || type == "double", "--type wants float or double, got " + type);
    require(steps > 0 && n > 0 && n % 2 == 0, "--steps must be positive and --n even and positive");
    return type == "float" ? run<float>("faults/orbit-float", steps, n, reps, key, 1e-4)
                           : run<double>("faults/orbit-double", steps, n, reps, key, 1e-12);
}
