// Appends results and their sequence numbers, result visible first. `fault` fences after every result, `fix` once a batch.
#include "g_util.cuh"
using namespace held;

template <bool EACH>
__global__ void __launch_bounds__(256) journal_append(const float* __restrict__ in, float* __restrict__ results, unsigned* __restrict__ sequence, int n, unsigned epoch) {
    constexpr int BATCH = 16;
    int base = blockIdx.x * (256 * BATCH) + threadIdx.x;
    if (EACH) {
        for (int i = 0; i < BATCH; ++i) {
            int at = base + i * 256;
            if (at < n) {
                results[at] = in[at] * in[at] + 1.0f;
                __threadfence();
                sequence[at] = epoch + at;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            int at = base + i * 256;
            if (at < n) results[at] = in[at] * in[at] + 1.0f;
        }
        __threadfence();
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            int at = base + i * 256;
            if (at < n) sequence[at] = epoch + at;
        }
    }
}

__global__ void reference_journal(const float* in, float* results, unsigned* sequence, int n, unsigned epoch) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        results[i] = float(double(in[i]) * double(in[i]) + 1.0);
        sequence[i] = epoch + i;
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int n = int(args.get("n", 33554432));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= 268435456, "--n out of range");
    float *in = device_alloc<float>(n), *results = device_alloc<float>(n), *ref = device_alloc<float>(n);
    unsigned *sequence = device_alloc<unsigned>(n), *ref_sequence = device_alloc<unsigned>(n);
    fill_uniform(in, n, s, -1.0f, 1.0f);
    unsigned epoch = unsigned(s % 1000000);
    reference_journal<<<1056, 256>>>(in, ref, ref_sequence, n, epoch);
    poison(results, size_t(n) * 4);
    poison(sequence, size_t(n) * 4);
    finish();
    auto kernel = fix ? journal_append<false> : journal_append<true>;
    auto launch = [&] { kernel<<<(n + 4095) / 4096, 256>>>(in, results, sequence, n, epoch); };
    launch();
    finish();
    double error = std::max(device_error(results, ref, n), device_error(sequence, ref_sequence, n));
    if (!(device_error(results, ref, n) <= 1e-6)) error = NAN;
    return report("faults/g-journal", median_us(launch, reps), 0, 12.0 * n, error, 1e-6);
}
