// Poisson encoding of intensities for a spiking network: how many uniform numbers can be multiplied before the product falls to
// `floor` = exp(-intensity). --order: random, or sorted by intensity. The random numbers are a hash of (element, count).
#include "h_harness.cuh"

__host__ __device__ __forceinline__ unsigned scramble(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

__global__ void __launch_bounds__(256) poisson_spikes(const float* __restrict__ floors, int* __restrict__ spikes, int n, unsigned key) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float floor = floors[i], product = 1;
    unsigned state = scramble(unsigned(i) ^ key);
    int count = -1;
    do {
        state += 0x9e3779b9u;
        product *= float(scramble(state) >> 8) * 0x1p-24f;
        ++count;
    } while (product > floor);
    spikes[i] = count;
}

// floors are u^8, so intensities are exponential with mean 8; u from 0.02 to 1.
__global__ void make_floors(float* floors, int n, unsigned long long key, bool sorted) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double part = sorted ? (i + 0.5) / n : double(diagnose_hash(key + i) >> 11) * 0x1p-53;
        double u = 0.02 + 0.98 * part, v = u * u * u * u;
        floors[i] = float(v * v);
    }
}

struct Reference {
    const float* floors;
    unsigned key;
    __device__ double operator()(size_t i) const {
        double sum = 0, limit = log(double(floors[i]));
        unsigned state = scramble(unsigned(i) ^ key);
        int count = -1;
        do {
            state += 0x9e3779b9u;
            sum += log(double(scramble(state) >> 8) * 0x1p-24);
            ++count;
        } while (sum > limit);
        return count;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string order = args.get_str("order", "random");
    require(order == "random" || order == "sorted", "--order must be random or sorted, got " + order);
    int n = positive(args, "n", 33554432, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    float* floors = device_alloc<float>(n);
    int* spikes = device_alloc<int>(n);
    unsigned hashed = unsigned(diagnose_hash(key + 1));
    launch_once([&] { make_floors<<<1056, 256>>>(floors, n, diagnose_hash(key), order == "sorted"); });
    poison(spikes, size_t(n) * sizeof(int));
    auto launch = [&] { poisson_spikes<<<blocks_for(n, 256), 256>>>(floors, spikes, n, hashed); };
    launch_once(launch);
    double error = device_error(spikes, n, Reference{floors, hashed});
    return report("faults/m-spikes", median_us(launch, reps), 0, 8.0 * n, error, 1e-3);
}
