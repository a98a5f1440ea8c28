// Legendre synthesis of a spectral climate model in double precision: for each order m and latitude the sum over the degrees n >= m of
// coefficient times associated Legendre function (normalised), which a three-term recurrence makes on the fly. Latitudes from 53 S to
// 53 N, two a thread. `fault` looks uneven and wasteful: a block has one order (1 to 1280 degrees, the longest first) and reads its terms
// again and again from global memory; `fix` pairs a long order with a short one and stages the terms in shared memory. The FP64 pipe is
// full in both.
#include "h_harness.cuh"

constexpr int kBlock = 128, kLatitudes = 2 * kBlock, kTile = 64;

// Factors of the next degree (of this and the one before), and the coefficient of this degree.
struct alignas(16) Term {
    double a, b, re, im;
};

__host__ __device__ inline size_t first_term(int m, int degrees) { return size_t(m) * degrees - size_t(m) * (m - 1) / 2; }

struct Point {
    double mu, before, now, re, im;

    __device__ __forceinline__ void start(double sine, double value) {
        mu = sine;
        before = re = im = 0;
        now = value;
    }
    __device__ __forceinline__ void add(double2 factors, double2 coefficient) {
        re = fma(coefficient.x, now, re);
        im = fma(coefficient.y, now, im);
        double next = fma(factors.x * mu, now, -factors.y * before);
        before = now;
        now = next;
    }
};

struct Field {
    const double *mu, *begin;  // of each latitude; P_mm of each order and latitude
    double2* out;              // [order][latitude]
    int degrees, latitudes;

    __device__ __forceinline__ void load(Point (&p)[2], int m) const {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            int at = blockIdx.x * kLatitudes + k * kBlock + threadIdx.x;
            p[k].start(mu[at], begin[size_t(m) * latitudes + at]);
        }
    }
    __device__ __forceinline__ void store(const Point (&p)[2], int m) const {
#pragma unroll
        for (int k = 0; k < 2; ++k)
            out[size_t(m) * latitudes + blockIdx.x * kLatitudes + k * kBlock + threadIdx.x] = make_double2(p[k].re, p[k].im);
    }
};

__global__ void __launch_bounds__(kBlock) synthesis_orders(const double2* __restrict__ terms, Field field) {
    const int m = blockIdx.y;
    const double2* term = terms + 2 * first_term(m, field.degrees);
    Point p[2];
    field.load(p, m);
#pragma unroll 4
    for (int j = 0; j < field.degrees - m; ++j) {
        const double2 factors = term[2 * j], coefficient = term[2 * j + 1];
        p[0].add(factors, coefficient);
        p[1].add(factors, coefficient);
    }
    field.store(p, m);
}

__global__ void __launch_bounds__(kBlock) synthesis_pairs(const double2* __restrict__ terms, Field field) {
    __shared__ double2 tile[2 * kTile];
    for (int half = 0; half < 2; ++half) {
        const int m = half ? field.degrees - 1 - int(blockIdx.y) : blockIdx.y, count = field.degrees - m;
        const double2* term = terms + 2 * first_term(m, field.degrees);
        Point p[2];
        field.load(p, m);
        for (int base = 0; base < count; base += kTile) {
            const int here = min(kTile, count - base);
            __syncthreads();
            if (int(threadIdx.x) < 2 * here) tile[threadIdx.x] = term[2 * base + threadIdx.x];
            __syncthreads();
#pragma unroll 4
            for (int j = 0; j < here; ++j) {
                const double2 factors = tile[2 * j], coefficient = tile[2 * j + 1];
                p[0].add(factors, coefficient);
                p[1].add(factors, coefficient);
            }
        }
        field.store(p, m);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int degrees = positive(args, "degrees", 1280, 1280), latitudes = positive(args, "latitudes", 1024, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(degrees % 2 == 0, "--degrees must be even");
    require(latitudes % kLatitudes == 0, "--latitudes must be a multiple of 256");
    size_t count = first_term(degrees, degrees), n = size_t(degrees) * latitudes;
    std::mt19937_64 rng(key);
    std::uniform_real_distribution<double> coefficient(-1, 1), place(-0.8, 0.8);
    std::vector<Term> terms(count);
    for (int m = 0; m < degrees; ++m)
        for (int j = 0; j < degrees - m; ++j) {
            double d = m + j + 1.0, down = d * d - double(m) * m;
            double b = j ? std::sqrt((2 * d + 1) / (2 * d - 3) * ((d - 1) * (d - 1) - double(m) * m) / down) : 0.0;
            terms[first_term(m, degrees) + j] = {std::sqrt((4 * d * d - 1) / down), b, coefficient(rng), coefficient(rng)};
        }
    // P_mm stays above 1e-290, as the cosine of the latitude is at least 0.6.
    std::vector<double> mu(latitudes), begin(n);
    for (int l = 0; l < latitudes; ++l) {
        mu[l] = place(rng);
        double cosine = std::sqrt((1 - mu[l]) * (1 + mu[l])), value = std::sqrt(0.5);
        for (int m = 0; m < degrees; ++m) {
            begin[size_t(m) * latitudes + l] = value;
            value *= std::sqrt((2.0 * m + 3) / (2.0 * m + 2)) * cosine;
        }
    }
    auto copy = [](const auto& host) {
        using T = typename std::decay_t<decltype(host)>::value_type;
        T* dev = device_alloc<T>(host.size());
        CHECK_CUDA(cudaMemcpy(dev, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
        return dev;
    };
    auto* on_device = reinterpret_cast<const double2*>(copy(terms));
    Field field{copy(mu), copy(begin), device_alloc<double2>(n), degrees, latitudes};
    poison(field.out, n * sizeof(double2));
    unsigned across = unsigned(latitudes / kLatitudes);
    auto launch = [&] {
        if (fix) synthesis_pairs<<<dim3(across, unsigned(degrees / 2)), kBlock>>>(on_device, field);
        else synthesis_orders<<<dim3(across, unsigned(degrees)), kBlock>>>(on_device, field);
    };
    launch_once(launch);
    std::vector<double2> got = to_host(field.out, n);
    auto finite = [](double2 v) { return std::isfinite(v.x) && std::isfinite(v.y); };
    require(std::all_of(got.begin(), got.end(), finite), "a value is not finite");
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i += std::max<size_t>(1, n / 4000) | 1) {
        int m = int(i / latitudes);
        long double x = mu[i % latitudes], before = 0, now = begin[i], re = 0, im = 0;
        for (int j = 0; j < degrees - m; ++j) {
            const Term& t = terms[first_term(m, degrees) + j];
            re += t.re * now;
            im += t.im * now;
            long double next = t.a * x * now - t.b * before;
            before = now;
            now = next;
        }
        difference += std::pow(double(re) - got[i].x, 2) + std::pow(double(im) - got[i].y, 2);
        norm += double(re * re + im * im);
    }
    double flops = 8.0 * double(count) * latitudes;
    return report("faults/r-legendre", median_us(launch, reps), flops, 0, std::sqrt(difference / norm), 1e-10);
}
