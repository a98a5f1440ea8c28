// Exact diagonalisation: the Heisenberg Hamiltonian of a ring of 26 spins times a vector, in the sector with 13 up, without a stored
// matrix. A thread takes a basis state (26 bits, in ascending order), flips every antiparallel pair of neighbours and needs the number of
// the new state. `fault` counts it out bit by bit (a sum of binomial coefficients), `fix` adds two entries of tables of 8192 (Lin).
#include "h_harness.cuh"

constexpr int kBlock = 256, kSites = 26, kUp = 13, kRow = 16, kLow = 13, kTable = 1 << kLow;
constexpr float kCoupling = 1.0f;

// Number of the states below: the sum of C(place of the k-th spin up, k).
struct Counted {
    const int* choose;  // [place][k], rows of 16

    __device__ __forceinline__ int operator()(unsigned state) const {
        int rank = 0, k = 0;
#pragma unroll
        for (int place = 0; place < kSites; ++place) {
            int up = state >> place & 1;
            k += up;
            rank += choose[place * kRow + k] * up;
        }
        return rank;
    }
};

struct Tabled {
    const int *low, *high;

    __device__ __forceinline__ int operator()(unsigned state) const { return low[state % kTable] + high[state / kTable]; }
};

template <class Rank>
__device__ __forceinline__ void apply(const Rank& rank, const unsigned* __restrict__ states, const float* __restrict__ v,
                                      const float* __restrict__ field, float* __restrict__ out, int n) {
    for (int i = blockIdx.x * kBlock + threadIdx.x; i < n; i += gridDim.x * kBlock) {
        const unsigned state = states[i];
        float diagonal = field[i], sum = 0;
#pragma unroll 1
        for (int bond = 0; bond < kSites; ++bond) {
            const unsigned pair = 1u << bond | 1u << (bond + 1 == kSites ? 0 : bond + 1), set = state & pair;
            if (set != 0 && set != pair) {
                diagonal -= 0.25f * kCoupling;
                sum += v[rank(state ^ pair)];
            } else {
                diagonal += 0.25f * kCoupling;
            }
        }
        out[i] = 0.5f * kCoupling * sum + diagonal * v[i];
    }
}

__global__ void __launch_bounds__(kBlock) heisenberg_counted(const int* __restrict__ choose, const unsigned* __restrict__ states,
                                                             const float* __restrict__ v, const float* __restrict__ field,
                                                             float* __restrict__ out, int n) {
    __shared__ int table[kSites * kRow];
    for (int i = threadIdx.x; i < kSites * kRow; i += kBlock) table[i] = choose[i];
    __syncthreads();
    apply(Counted{table}, states, v, field, out, n);
}

__global__ void __launch_bounds__(kBlock) heisenberg_tabled(const int* __restrict__ low, const int* __restrict__ high,
                                                            const unsigned* __restrict__ states, const float* __restrict__ v,
                                                            const float* __restrict__ field, float* __restrict__ out, int n) {
    apply(Tabled{low, high}, states, v, field, out, n);
}

template <class T>
T* copied(const std::vector<T>& host) {
    T* dev = device_alloc<T>(host.size());
    CHECK_CUDA(cudaMemcpy(dev, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return dev;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int blocks = positive(args, "blocks", 10560, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    std::vector<unsigned> states;
    for (unsigned s = 0; s < 1u << kSites; ++s)
        if (__builtin_popcount(s) == kUp) states.push_back(s);
    std::vector<int> choose(kSites * kRow), low(kTable), high(kTable);
    for (int place = 0; place < kSites; ++place)
        for (int k = 0; k < kRow; ++k)
            choose[place * kRow + k] = k == 0 ? 1 : place == 0 ? 0 : choose[(place - 1) * kRow + k] + choose[(place - 1) * kRow + k - 1];
    int of[kLow + 1] = {}, before = 0;
    for (unsigned s = 0; s < kTable; ++s) low[s] = of[__builtin_popcount(s)]++;
    for (unsigned s = 0; s < kTable; ++s) {
        high[s] = before;
        before += of[kUp - __builtin_popcount(s)];
    }
    size_t n = states.size();
    require(size_t(before) == n, "the tables do not match the states");
    unsigned* state = copied(states);
    int *choices = copied(choose), *lows = copied(low), *highs = copied(high);
    float *v = device_alloc<float>(n), *field = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(v, n, key, 0.1f, 1.0f);
    fill_uniform(field, n, key + 1, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    auto launch = [&] {
        if (fix) heisenberg_tabled<<<blocks, kBlock>>>(lows, highs, state, v, field, out, int(n));
        else heisenberg_counted<<<blocks, kBlock>>>(choices, state, v, field, out, int(n));
    };
    launch_once(launch);
    std::vector<float> all = to_host(out, n), vector = to_host(v, n), on_site = to_host(field, n), got;
    std::vector<double> wanted;
    require(std::all_of(all.begin(), all.end(), [](float x) { return std::isfinite(x); }), "a value is not finite");
    for (size_t i = 0; i < n; i += std::max<size_t>(1, n / 20000) | 1) {
        double diagonal = on_site[i], sum = 0;
        for (int bond = 0; bond < kSites; ++bond) {
            int next = (bond + 1) % kSites;
            if ((states[i] >> bond & 1) == (states[i] >> next & 1)) {
                diagonal += 0.25;
                continue;
            }
            diagonal -= 0.25;
            unsigned flipped = states[i] ^ 1u << bond ^ 1u << next;
            sum += vector[size_t(std::lower_bound(states.begin(), states.end(), flipped) - states.begin())];
        }
        got.push_back(all[i]);
        wanted.push_back(0.5 * sum + diagonal * vector[i]);
    }
    return report("faults/r-states", median_us(launch, reps), 0, 16.0 * double(n), relative_error(got, wanted), 1e-5);
}
