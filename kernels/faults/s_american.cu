// American puts by an explicit scheme: 512 log-prices an option, backwards in time, the exercise value as a floor; a warp an option, in double
// (the differences of neighbouring values give the delta). --variant fault: the line of values lies in two buffers of shared memory; fix: a
// lane keeps sixteen neighbouring values and their floors in registers and gets the two at its ends by shuffles.
#include "h_harness.cuh"

constexpr int kNodes = 512, kMiddle = kNodes / 2, kWarps = 4, kHeld = kNodes / 32, kLineWords = 3 * kNodes + 4;

struct Terms {
    const double *spot, *strike, *volatility, *rate, *years;
};

// Discounted probabilities of a step with a spacing of volatility * sqrt(3 dt).
struct Scheme {
    double spot, strike, spacing, up, middle, down;
    __host__ __device__ double price(int node) const { return spot * exp((node - kMiddle) * spacing); }
    __host__ __device__ double floor_at(int node) const {
        double value = strike - price(node);
        return value > 0 ? value : 0;
    }
    __host__ __device__ double delta(double above, double below) const { return (above - below) / (price(kMiddle + 1) - price(kMiddle - 1)); }
};

__host__ __device__ inline Scheme scheme_of(double spot, double strike, double volatility, double rate, double years, int steps) {
    double dt = years / steps, drift = rate - 0.5 * volatility * volatility;
    double tilt = drift * sqrt(dt / (12 * volatility * volatility)), discount = exp(-rate * dt);
    return {spot, strike, volatility * sqrt(3 * dt), discount * (1.0 / 6 + tilt), discount * (2.0 / 3), discount * (1.0 / 6 - tilt)};
}

__host__ __device__ inline double stepped(const Scheme& s, double below, double here, double above, double floor) {
    double value = s.up * above + (s.middle * here + s.down * below);
    return value > floor ? value : floor;
}

__device__ __forceinline__ Scheme scheme_of(const Terms& t, int option, int steps) {
    return scheme_of(t.spot[option], t.strike[option], t.volatility[option], t.rate[option], t.years[option], steps);
}

__global__ void __launch_bounds__(kWarps * 32) american_shared(Terms terms, double2* __restrict__ results, int options, int steps) {
    extern __shared__ double lines[];
    const int lane = threadIdx.x % 32, option = blockIdx.x * kWarps + threadIdx.x / 32;
    if (option >= options) return;
    // Both lines have a word more at each end, which is read for the ends and does not matter.
    double* values = lines + threadIdx.x / 32 * kLineWords + 1;
    double* next = values + kNodes + 2;
    double* floors = next + kNodes + 1;
    const Scheme s = scheme_of(terms, option, steps);
    for (int j = lane; j < kNodes; j += 32) values[j] = next[j] = floors[j] = s.floor_at(j);
    if (lane < 2) values[lane ? kNodes : -1] = next[lane ? kNodes : -1] = 0;
    __syncwarp();
    for (int t = 0; t < steps; ++t) {
        for (int k = 0; k < kHeld; k += 4) {
            double fresh[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int j = (k + i) * 32 + lane;
                fresh[i] = stepped(s, values[j - 1], values[j], values[j + 1], floors[j]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int j = (k + i) * 32 + lane;
                if (j > 0 && j < kNodes - 1) next[j] = fresh[i];  // the two ends keep their exercise value
            }
        }
        __syncwarp();
        double* other = values;
        values = next;
        next = other;
    }
    if (lane == 0) results[option] = make_double2(values[kMiddle], s.delta(values[kMiddle + 1], values[kMiddle - 1]));
}

__global__ void __launch_bounds__(kWarps * 32) american_registers(Terms terms, double2* __restrict__ results, int options, int steps) {
    const int lane = threadIdx.x % 32, option = blockIdx.x * kWarps + threadIdx.x / 32;
    if (option >= options) return;
    const Scheme s = scheme_of(terms, option, steps);
    double values[kHeld], floors[kHeld];
#pragma unroll
    for (int k = 0; k < kHeld; ++k) values[k] = floors[k] = s.floor_at(lane * kHeld + k);
    for (int t = 0; t < steps; ++t) {
        double below = __shfl_up_sync(0xffffffffu, values[kHeld - 1], 1), above = __shfl_down_sync(0xffffffffu, values[0], 1);
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            double here = values[k];
            values[k] = stepped(s, below, here, k + 1 < kHeld ? values[k + 1] : above, floors[k]);
            below = here;
        }
        if (lane == 0) values[0] = floors[0];
        if (lane == 31) values[kHeld - 1] = floors[kHeld - 1];
    }
    double below = __shfl_up_sync(0xffffffffu, values[kHeld - 1], 1);
    if (lane == kMiddle / kHeld) results[option] = make_double2(values[0], s.delta(values[1], below));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int options = positive(args, "options", 33792, 1 << 22);
    int steps = positive(args, "steps", 256, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    const float low[5] = {80, 80, 0.25f, 0.01f, 0.5f}, high[5] = {120, 120, 0.6f, 0.06f, 3.0f};
    double* columns[5];
    for (int c = 0; c < 5; ++c) {
        columns[c] = device_alloc<double>(options);
        fill_uniform(columns[c], options, key + c, low[c], high[c]);
    }
    Terms terms{columns[0], columns[1], columns[2], columns[3], columns[4]};
    double2* results = device_alloc<double2>(options);
    poison(results, options * sizeof(double2));
    const int bytes = kWarps * kLineWords * int(sizeof(double));
    CHECK_CUDA(cudaFuncSetAttribute(american_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    auto launch = [&] {
        unsigned blocks = blocks_for(options, kWarps);
        if (fix) american_registers<<<blocks, kWarps * 32>>>(terms, results, options, steps);
        else american_shared<<<blocks, kWarps * 32, bytes>>>(terms, results, options, steps);
    };
    launch_once(launch);
    auto got = to_host(results, options);
    std::vector<double> host[5];
    for (int c = 0; c < 5; ++c) host[c] = to_host(columns[c], options);
    double error = 0;
    for (auto& r : got)
        if (!std::isfinite(r.x) || !std::isfinite(r.y)) error = INFINITY;
    for (int i = 0; i < options; i += std::max(1, options / 200) | 1) {
        Scheme s = scheme_of(host[0][i], host[1][i], host[2][i], host[3][i], host[4][i], steps);
        std::vector<double> floors(kNodes), values, next;
        for (int j = 0; j < kNodes; ++j) floors[j] = s.floor_at(j);
        values = next = floors;
        for (int t = 0; t < steps; ++t) {
            for (int j = 1; j < kNodes - 1; ++j) next[j] = stepped(s, values[j - 1], values[j], values[j + 1], floors[j]);
            values.swap(next);
        }
        double delta = s.delta(values[kMiddle + 1], values[kMiddle - 1]);
        error = std::max(error, std::max(std::fabs(got[i].x - values[kMiddle]) / s.strike, std::fabs(got[i].y - delta)));
    }
    return report("faults/s-american", median_us(launch, reps), 7.0 * kNodes * steps * options, 0, error, 1e-9);
}
