// Evaluates polynomials of degree eight modulo a 31-bit prime (a limb of an encrypted vector has its own prime). `fault` leaves the
// reduction to %, with a divisor known at run time, `fix` multiplies by a prepared quotient (Barrett).
#include "h_harness.cuh"

constexpr int kDegree = 8, kLimbs = 16;

struct Limb {
    unsigned prime, coefficient[kDegree + 1];
    unsigned long long quotient;  // floor((2^64 - 1) / prime)
};

struct Limbs {
    Limb limb[kLimbs];
};

struct Modulo {
    static __device__ __forceinline__ unsigned reduce(unsigned long long x, const Limb& limb) { return unsigned(x % limb.prime); }
};

struct Barrett {
    static __device__ __forceinline__ unsigned reduce(unsigned long long x, const Limb& limb) {
        unsigned r = unsigned(x - __umul64hi(x, limb.quotient) * limb.prime);  // below 2 prime < 2^32
        return r >= limb.prime ? r - limb.prime : r;
    }
};

template <class Reduction>
__device__ __forceinline__ unsigned evaluate(unsigned x, const Limb& limb) {
    unsigned value = limb.coefficient[kDegree];
#pragma unroll
    for (int i = kDegree - 1; i >= 0; --i)
        value = Reduction::reduce((unsigned long long)value * x + limb.coefficient[i], limb);
    return value;
}

template <class Reduction>
__device__ __forceinline__ void all_values(const uint4* __restrict__ x, uint4* __restrict__ out, int quads, const Limbs& limbs) {
    int q = blockIdx.x * 256 + threadIdx.x;
    if (q >= quads) return;
    const Limb& limb = limbs.limb[blockIdx.y];
    size_t i = size_t(blockIdx.y) * quads + q;
    uint4 v = x[i];
    out[i] = make_uint4(evaluate<Reduction>(v.x, limb), evaluate<Reduction>(v.y, limb), evaluate<Reduction>(v.z, limb),
                        evaluate<Reduction>(v.w, limb));
}

__global__ void __launch_bounds__(256) horner_modulo(const uint4* __restrict__ x, uint4* __restrict__ out, int quads,
                                                     const __grid_constant__ Limbs limbs) {
    all_values<Modulo>(x, out, quads, limbs);
}

__global__ void __launch_bounds__(256) horner_barrett(const uint4* __restrict__ x, uint4* __restrict__ out, int quads,
                                                      const __grid_constant__ Limbs limbs) {
    all_values<Barrett>(x, out, quads, limbs);
}

__global__ void below_prime(unsigned* x, int n, const __grid_constant__ Limbs limbs) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        x[size_t(blockIdx.y) * n + i] %= limbs.limb[blockIdx.y].prime;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 4194304, 1 << 25);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    // The largest primes below 2^31.
    Limbs limbs;
    std::mt19937_64 random(key);
    unsigned candidate = 0x7fffffffu;
    for (Limb& limb : limbs.limb) {
        auto prime = [](unsigned p) {
            for (unsigned d = 3; d <= p / d; d += 2)
                if (p % d == 0) return false;
            return true;
        };
        while (!prime(candidate)) candidate -= 2;
        limb.prime = candidate;
        candidate -= 2;
        limb.quotient = ~0ull / limb.prime;
        for (unsigned& c : limb.coefficient) c = unsigned(random() % limb.prime);
    }
    size_t all = size_t(n) * kLimbs;
    unsigned *x = device_alloc<unsigned>(all), *out = device_alloc<unsigned>(all);
    fill_uniform(reinterpret_cast<uint8_t*>(x), all * 4, key, 0, 1);
    below_prime<<<dim3(132, kLimbs), 256>>>(x, n, limbs);
    CHECK_CUDA(cudaGetLastError());
    poison(out, all * 4);
    dim3 grid(blocks_for(n / 4, 256), kLimbs);
    auto launch = [&] {
        auto* from = reinterpret_cast<const uint4*>(x);
        auto* to = reinterpret_cast<uint4*>(out);
        if (fix) horner_barrett<<<grid, 256>>>(from, to, n / 4, limbs);
        else horner_modulo<<<grid, 256>>>(from, to, n / 4, limbs);
    };
    launch_once(launch);
    auto hx = to_host(x, all), got = to_host(out, all);
    long long wrong = 0;
    for (size_t i = 0; i < all; i += 7) {
        const Limb& limb = limbs.limb[i / n];
        unsigned long long value = limb.coefficient[kDegree];
        for (int d = kDegree - 1; d >= 0; --d) value = (value * hx[i] + limb.coefficient[d]) % limb.prime;
        wrong += got[i] != value;
    }
    return report("faults/n-horner", median_us(launch, reps), 0, 8.0 * double(all), double(wrong), 0);
}
