// Reorders the qubits of a state vector: amplitude i goes to the index with its bits permuted. The lowest seven stay, so that whole
// lines move. `fault` permutes all bits for every amplitude, `fix` only those of a block's 64 rows, as the parts are independent.
#include "h_harness.cuh"

constexpr int kRows = 64, kBlock = 256, kStay = 7;

struct Order {
    int bits;
    int to[32];
    __host__ __device__ unsigned long long operator()(unsigned long long index) const {
        unsigned long long result = 0;
        for (int b = 0; b < bits; ++b) result |= (index >> b & 1ull) << to[b];
        return result;
    }
};

__global__ void __launch_bounds__(kBlock) reorder_each(const float2* __restrict__ in, float2* __restrict__ out, Order order) {
    unsigned long long base = (unsigned long long)(blockIdx.x) * kRows * kBlock + threadIdx.x;
    for (int row = 0; row < kRows; ++row) {
        unsigned long long i = base + row * kBlock;
        out[order(i)] = in[i];
    }
}

__global__ void __launch_bounds__(kBlock) reorder_parts(const float2* __restrict__ in, float2* __restrict__ out, Order order) {
    __shared__ unsigned long long rows[kRows];
    unsigned long long base = (unsigned long long)(blockIdx.x) * kRows * kBlock;
    if (threadIdx.x < kRows) rows[threadIdx.x] = order(base + threadIdx.x * kBlock);
    unsigned long long low = order(threadIdx.x);
    __syncthreads();
#pragma unroll 4
    for (int row = 0; row < kRows; ++row) out[rows[row] | low] = in[base + row * kBlock + threadIdx.x];
}

// Where amplitude i of the result comes from.
struct Reference {
    const float* in;
    Order back;
    __device__ double operator()(size_t j) const { return in[back(j / 2) * 2 + j % 2]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 1 << 28, 1 << 29), bits = 0;
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    while (1 << bits < n) ++bits;
    require(1 << bits == n && bits >= 14, "--n must be a power of two of at least 16384");
    Order order{bits, {}}, back{bits, {}};
    std::vector<int> places;
    for (int b = kStay; b < bits; ++b) places.push_back(b);
    std::mt19937_64 random(key);
    std::shuffle(places.begin(), places.end(), random);
    for (int b = 0; b < bits; ++b) {
        order.to[b] = b < kStay ? b : places[b - kStay];
        back.to[order.to[b]] = b;
    }
    float2 *in = device_alloc<float2>(n), *out = device_alloc<float2>(n);
    fill_uniform(reinterpret_cast<float*>(in), size_t(n) * 2, key, -1.0f, 1.0f);
    poison(out, size_t(n) * sizeof(float2));
    unsigned blocks = unsigned(n / (kRows * kBlock));
    auto launch = [&] {
        if (fix) reorder_parts<<<blocks, kBlock>>>(in, out, order);
        else reorder_each<<<blocks, kBlock>>>(in, out, order);
    };
    launch_once(launch);
    double error = device_error(reinterpret_cast<float*>(out), size_t(n) * 2, Reference{reinterpret_cast<float*>(in), back});
    return report("faults/n-qubits", median_us(launch, reps), 0, 16.0 * double(n), error, 0);
}
