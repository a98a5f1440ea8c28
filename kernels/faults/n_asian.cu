// Asian options by Monte Carlo: a path a thread, paths numbered through, a generator a path. Two blocks of 1024 fill a
// multiprocessor. `fault` gives each block sixteen paths a thread, which makes 280 blocks; `fix` deals the paths out to 264 blocks.
#include "h_harness.cuh"

constexpr int kBlock = 1024, kPerThread = 16;

struct Option {
    float spot, strike, drift, volatility;  // of a step
    int steps;
    float one_by_steps;
};

struct Generator {
    unsigned state;
    __host__ __device__ explicit Generator(unsigned seed, unsigned path) {
        unsigned h = (path + seed) * 0x9e3779b1u;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        state = h ^ h >> 13;
    }
    __host__ __device__ unsigned next() {  // PCG: a congruence and an output that is permuted by its top bits
        state = state * 747796405u + 2891336453u;
        unsigned word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
        return word ^ word >> 22;
    }
};

__device__ __forceinline__ float fast_log2(float x) { return __log2f(x); }
__device__ __forceinline__ double fast_log2(double x) { return log2(x); }
__device__ __forceinline__ float fast_exp2(float x) { return exp2f(x); }
__device__ __forceinline__ double fast_exp2(double x) { return exp2(x); }
__device__ __forceinline__ void turn(float x, float* s, float* c) { __sincosf(x, s, c); }
__device__ __forceinline__ void turn(double x, double* s, double* c) { sincos(x, s, c); }
__device__ __forceinline__ float root(float x) {
    float r;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ double root(double x) { return sqrt(x); }

template <class T>
__device__ __forceinline__ T payoff(const Option& option, unsigned seed, unsigned path) {
    Generator random(seed, path);
    T log_price = T(0), sum = T(0);
    for (int s = 0; s < option.steps; s += 2) {
        T u = T(float(random.next() >> 8) * 0x1p-24f + 0x1p-25f), a = T(float(int(random.next()) >> 8) * 0x1.921fb6p-22f), sine, cosine;
        T radius = root(T(-1.38629436) * fast_log2(u));
        turn(a, &sine, &cosine);
        log_price += T(option.drift) + T(option.volatility) * radius * cosine;
        sum += fast_exp2(log_price);
        log_price += T(option.drift) + T(option.volatility) * radius * sine;
        sum += fast_exp2(log_price);
    }
    T mean = T(option.spot) * sum * T(option.one_by_steps) - T(option.strike);
    return mean > T(0) ? mean : T(0);
}

__global__ void __launch_bounds__(kBlock, 2) asian_batches(float* __restrict__ out, Option option, unsigned seed, int paths) {
    int first = blockIdx.x * kBlock * kPerThread + threadIdx.x;
#pragma unroll 1
    for (int p = 0; p < kPerThread; ++p) {
        int path = first + p * kBlock;
        if (path < paths) out[path] = payoff<float>(option, seed, path);
    }
}

__global__ void __launch_bounds__(kBlock, 2) asian_dealt(float* __restrict__ out, Option option, unsigned seed, int paths) {
#pragma unroll 1
    for (int path = blockIdx.x * kBlock + threadIdx.x; path < paths; path += gridDim.x * kBlock)
        out[path] = payoff<float>(option, seed, path);
}

struct Reference {
    Option option;
    unsigned seed;
    __device__ double operator()(size_t i) const { return payoff<double>(option, seed, unsigned(i)); }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int paths = positive(args, "paths", 4587520, 1 << 26), steps = positive(args, "steps", 252, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(steps % 2 == 0, "--steps must be even");
    float* out = device_alloc<float>(paths);
    poison(out, size_t(paths) * sizeof(float));
    Option option{100.0f, 90.0f, 0.0001f, 0.02f, steps, 1.0f / steps};
    auto launch = [&] {
        if (fix) asian_dealt<<<264, kBlock>>>(out, option, unsigned(key), paths);
        else asian_batches<<<blocks_for(paths, kBlock * kPerThread), kBlock>>>(out, option, unsigned(key), paths);
    };
    launch_once(launch);
    double error = device_error(out, std::min(paths, 1 << 20), Reference{option, unsigned(key)});
    for (float v : to_host(out, paths))
        if (!std::isfinite(v)) error = INFINITY;
    return report("faults/n-asian", median_us(launch, reps), 20.0 * paths * steps, 0, error, 1e-3);
}
