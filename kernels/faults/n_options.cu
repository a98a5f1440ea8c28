// European options by Black and Scholes, call and put, with a polynomial for the normal distribution. `fault` has the textbook's
// constants as they stand (doubles), `fix` with the suffix f; the double sum of a block's calls stays in both.
#include "h_harness.cuh"

// The numbers of the formula as a plain literal gives them: the variables are floats in both.
struct Plain {
    using Real = double;
};
struct Suffixed {
    using Real = float;
};

__device__ __forceinline__ float over(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double over(double a, double b) { return a / b; }

template <class Literal>
__device__ __forceinline__ float normal(float d) {
    using R = typename Literal::Real;
    float k = over(R(1.0), R(1.0) + R(0.2316419) * fabsf(d));
    float poly = k * (R(0.31938153) + k * (R(-0.356563782) + k * (R(1.781477937) + k * (R(-1.821255978) + k * R(1.330274429)))));
    float tail = R(0.3989422804) * __expf(-d * d * R(0.5)) * poly;
    return d > 0 ? float(R(1.0) - tail) : tail;
}

struct Market {
    const float *spot, *strike, *years;
    float rate, sigma;
};

template <class Literal>
__device__ __forceinline__ void price(const Market& m, int i, float& call, float& put) {
    using R = typename Literal::Real;
    float spot = __ldg(m.spot + i), strike = __ldg(m.strike + i), years = __ldg(m.years + i);
    float spread = m.sigma * years * rsqrtf(years);
    float d1 = __fdividef(__logf(__fdividef(spot, strike)) + (m.rate + R(0.5) * m.sigma * m.sigma) * years, spread), d2 = d1 - spread;
    float n1 = normal<Literal>(d1), n2 = normal<Literal>(d2), bond = strike * __expf(-m.rate * years);
    call = spot * n1 - bond * n2;
    put = bond * (R(1.0) - n2) - spot * (R(1.0) - n1);
}

__device__ __forceinline__ void add_block(float call, double* total) {
    double sum = call;
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) atomicAdd(total + blockIdx.x % 1024, sum);
}

__global__ void __launch_bounds__(256) options_plain(Market market, float* __restrict__ call, float* __restrict__ put, int n, double* total) {
    float mine = 0;
#pragma unroll 2
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float c, p;
        price<Plain>(market, i, c, p);
        call[i] = c;
        put[i] = p;
        mine += c;
    }
    add_block(mine, total);
}

__global__ void __launch_bounds__(256) options_suffixed(Market market, float* __restrict__ call, float* __restrict__ put, int n,
                                                        double* total) {
    float mine = 0;
#pragma unroll 2
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float c, p;
        price<Suffixed>(market, i, c, p);
        call[i] = c;
        put[i] = p;
        mine += c;
    }
    add_block(mine, total);
}

struct Reference {
    Market m;
    int n;
    __device__ static double normal(double d) {
        double k = 1.0 / (1.0 + 0.2316419 * fabs(d));
        double poly = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
        double tail = 0.3989422804 * exp(-d * d / 2.0) * poly;
        return d > 0 ? 1.0 - tail : tail;
    }
    __device__ double operator()(size_t j) const {
        int i = int(j % n);
        double spot = m.spot[i], strike = m.strike[i], years = m.years[i], rate = m.rate, sigma = m.sigma, spread = sigma * sqrt(years);
        double d1 = (log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / spread, bond = strike * exp(-rate * years);
        double n1 = normal(d1), n2 = normal(d1 - spread);
        return j < size_t(n) ? spot * n1 - bond * n2 : bond * (1.0 - n2) - spot * (1.0 - n1);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 67108864, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float *spot = device_alloc<float>(n), *strike = device_alloc<float>(n), *years = device_alloc<float>(n);
    float* prices = device_alloc<float>(size_t(n) * 2);
    double* total = device_alloc<double>(1024);
    fill_uniform(spot, n, key, 5.0f, 30.0f);
    fill_uniform(strike, n, key + 1, 1.0f, 100.0f);
    fill_uniform(years, n, key + 2, 0.25f, 10.0f);
    poison(prices, size_t(n) * 2 * sizeof(float));
    CHECK_CUDA(cudaMemset(total, 0, 1024 * sizeof(double)));
    Market market{spot, strike, years, 0.02f, 0.3f};
    auto launch = [&] {
        if (fix) options_suffixed<<<2112, 256>>>(market, prices, prices + n, n, total);
        else options_plain<<<2112, 256>>>(market, prices, prices + n, n, total);
    };
    launch_once(launch);
    double error = device_error(prices, size_t(n) * 2, Reference{market, n});
    return report("faults/n-options", median_us(launch, reps), 0, 20.0 * n, error, 1e-4);
}
