// Cash flows of a pool of mortgages: each month interest on the balance, the level payment, and prepayment at a rate of the month, every
// amount rounded to whole cents. --variant fault: amounts are 64-bit integers, which become doubles for each product with a rate and integers
// again; fix: amounts are doubles that hold whole numbers (far below 2^51), rounded by adding and subtracting 1.5 * 2^52. The same cents.
#include "h_harness.cuh"

constexpr int kThreads = 256, kMostMonths = 480;

struct WholeCents {
    using Amount = long long;
    static __device__ __forceinline__ Amount from(long long cents) { return cents; }
    static __device__ __forceinline__ long long to(Amount cents) { return cents; }
    static __device__ __forceinline__ Amount share(Amount of, double rate) { return __double2ll_rn(double(of) * rate); }
};

struct DoubleCents {
    using Amount = double;
    static __device__ __forceinline__ Amount from(long long cents) { return double(cents); }
    static __device__ __forceinline__ long long to(Amount cents) { return __double2ll_rn(cents); }
    static __device__ __forceinline__ Amount share(Amount of, double rate) {
        constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: doubles of that size are whole numbers
        return __dadd_rn(__dadd_rn(__dmul_rn(of, rate), kMagic), -kMagic);
    }
};

struct Pool {
    const long long* balance;
    const double* rate;      // a month
    const long long* payment;
};

struct Flows {
    long long *left, *outstanding;  // after the last month; the sum of the balances after each month (for the average life)
};

template <class Cents>
__device__ __forceinline__ void project(const Pool& pool, const double* __restrict__ speeds, int months, const Flows& flows, int loans) {
    __shared__ double prepaid_share[kMostMonths];
    for (int m = threadIdx.x; m < months; m += kThreads) prepaid_share[m] = speeds[m];
    __syncthreads();
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= loans) return;
    typename Cents::Amount balance = Cents::from(pool.balance[i]), outstanding = 0;
    const typename Cents::Amount payment = Cents::from(pool.payment[i]);
    const double rate = pool.rate[i];
#pragma unroll 4
    for (int m = 0; m < months; ++m) {
        typename Cents::Amount principal = payment - Cents::share(balance, rate);
        principal = principal < balance ? principal : balance;
        balance -= principal;
        balance -= Cents::share(balance, prepaid_share[m]);
        outstanding += balance;
    }
    flows.left[i] = Cents::to(balance);
    flows.outstanding[i] = Cents::to(outstanding);
}

__global__ void __launch_bounds__(kThreads, 8) project_integer(Pool pool, const double* speeds, int months, Flows flows, int loans) {
    project<WholeCents>(pool, speeds, months, flows, loans);
}

__global__ void __launch_bounds__(kThreads, 8) project_double(Pool pool, const double* speeds, int months, Flows flows, int loans) {
    project<DoubleCents>(pool, speeds, months, flows, loans);
}

__global__ void level_payments(const long long* balance, const double* rate, long long* payment, int months, int loans) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < loans) payment[i] = llrint(double(balance[i]) * rate[i] / (1 - pow(1 + rate[i], -double(months))));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int loans = positive(args, "loans", 4325376, 1 << 26);
    int months = positive(args, "months", 360, kMostMonths);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    auto* balance = device_alloc<long long>(loans);
    auto* payment = device_alloc<long long>(loans);
    double *rate = device_alloc<double>(loans), *speeds = device_alloc<double>(months);
    Flows flows{device_alloc<long long>(loans), device_alloc<long long>(loans)};
    fill_uniform(balance, loans, key, 5e6f, 1e8f);
    fill_uniform(rate, loans, key + 1, 0.02f / 12, 0.08f / 12);
    level_payments<<<blocks_for(loans, 256), 256>>>(balance, rate, payment, months, loans);
    CHECK_CUDA(cudaGetLastError());
    // A ramp over thirty months, as pools are quoted, to between 3 % and 9 % a year.
    std::mt19937_64 rng(key + 2);
    double top = std::uniform_real_distribution<double>(0.03, 0.09)(rng);
    std::vector<double> ramp(months);
    for (int m = 0; m < months; ++m) ramp[m] = 1 - std::pow(1 - top * std::min(m + 1, 30) / 30, 1.0 / 12);
    CHECK_CUDA(cudaMemcpy(speeds, ramp.data(), months * sizeof(double), cudaMemcpyHostToDevice));
    poison(flows.left, size_t(loans) * 8);
    poison(flows.outstanding, size_t(loans) * 8);
    auto launch = [&] {
        auto kernel = fix ? project_double : project_integer;
        kernel<<<blocks_for(loans, kThreads), kThreads>>>({balance, rate, payment}, speeds, months, flows, loans);
    };
    launch_once(launch);
    auto hb = to_host(balance, loans), hp = to_host(payment, loans), left = to_host(flows.left, loans), sum = to_host(flows.outstanding, loans);
    auto hr = to_host(rate, loans);
    size_t wrong = 0;
    for (int i = 0; i < loans; i += std::max(1, loans / 40000) | 1) {
        long long b = hb[i], total = 0;
        for (int m = 0; m < months; ++m) {
            double interest = double(b) * hr[i];
            b -= std::min(hp[i] - std::llrint(interest), b);
            double prepaid = double(b) * ramp[m];
            b -= std::llrint(prepaid);
            total += b;
        }
        wrong += left[i] != b || sum[i] != total;
    }
    return report("faults/s-loans", median_us(launch, reps), 2.0 * months * loans, 0, double(wrong), 0);
}
