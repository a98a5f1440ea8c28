// A persistent recurrent network as in a sample-by-sample vocoder: h = tanh(W h + x[t]), 128 units, W in registers (a row a thread), a block a
// sequence. --variant fault: one running sum over the 128 products; fix: eight.
#include "p_harness.cuh"

constexpr int kUnits = 128;

template <int SUMS>
__global__ void __launch_bounds__(kUnits, 1) recurrent_cell(const float* __restrict__ weights, const float* __restrict__ x, float* __restrict__ y, int steps) {
    __shared__ __align__(16) float state[2][kUnits];
    const int t = threadIdx.x;
    const float* in = x + size_t(blockIdx.x) * steps * kUnits + t;
    float* out = y + size_t(blockIdx.x) * steps * kUnits + t;
    float w[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) w[i] = weights[i * kUnits + t];
    state[0][t] = 0;
    float next[4];  // inputs four steps ahead
#pragma unroll
    for (int i = 0; i < 4; ++i) next[i] = in[i * kUnits];
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < steps; s += 4) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            float sum[SUMS];
            sum[0] = next[u];
#pragma unroll
            for (int i = 1; i < SUMS; ++i) sum[i] = 0;
            if (s + u + 4 < steps) next[u] = in[size_t(s + u + 4) * kUnits];
            const float4* h = reinterpret_cast<const float4*>(state[u & 1]);
#pragma unroll
            for (int i = 0; i < kUnits / 4; ++i) {
                float4 v = h[i];
                sum[(4 * i) % SUMS] = fmaf(w[4 * i], v.x, sum[(4 * i) % SUMS]);
                sum[(4 * i + 1) % SUMS] = fmaf(w[4 * i + 1], v.y, sum[(4 * i + 1) % SUMS]);
                sum[(4 * i + 2) % SUMS] = fmaf(w[4 * i + 2], v.z, sum[(4 * i + 2) % SUMS]);
                sum[(4 * i + 3) % SUMS] = fmaf(w[4 * i + 3], v.w, sum[(4 * i + 3) % SUMS]);
            }
#pragma unroll
            for (int d = SUMS / 2; d; d /= 2)
#pragma unroll
                for (int i = 0; i < d; ++i) sum[i] += sum[i + d];
            // tanh by one exponential
            float e = __expf(-2.0f * fabsf(sum[0])), v = copysignf(__fdividef(1.0f - e, 1.0f + e), sum[0]);
            state[~u & 1][t] = v;
            out[size_t(s + u) * kUnits] = v;
            __syncthreads();
        }
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int sequences = positive(args, "sequences", 132, 4096), steps = positive(args, "steps", 2048, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(steps % 4 == 0, "--steps must be a multiple of 4");
    size_t n = size_t(sequences) * steps * kUnits;
    float *weights = device_alloc<float>(kUnits * kUnits), *x = device_alloc<float>(n), *y = device_alloc<float>(n);
    fill_uniform(weights, size_t(kUnits * kUnits), key, -0.1f, 0.1f);  // a contraction: errors do not grow
    fill_uniform(x, n, key + 1, -1.0f, 1.0f);
    poison(y, n * 4);
    auto launch = [&] {
        auto kernel = fix ? recurrent_cell<8> : recurrent_cell<1>;
        kernel<<<sequences, kUnits>>>(weights, x, y, steps);
    };
    launch_once(launch);
    // Two sequences from start to end on the host, all others for NaN.
    std::vector<float> hw = to_host(weights, size_t(kUnits * kUnits)), hx = to_host(x, n), hy = to_host(y, n), out;
    std::vector<double> ref;
    for (float v : hy) require(std::isfinite(v), "an output is not finite");
    for (int which : {0, sequences - 1}) {
        std::vector<double> h(kUnits, 0.0), g(kUnits);
        for (int s = 0; s < steps; ++s) {
            size_t at = (size_t(which) * steps + s) * kUnits;
            for (int t = 0; t < kUnits; ++t) {
                double sum = hx[at + t];
                for (int i = 0; i < kUnits; ++i) sum += double(hw[i * kUnits + t]) * h[i];
                g[t] = std::tanh(sum);
            }
            h = g;
            for (int t = 0; t < kUnits; ++t) {
                out.push_back(hy[at + t]);
                ref.push_back(h[t]);
            }
        }
    }
    return report("faults/p-vocoder", median_us(launch, reps), 2.0 * n * kUnits, 0, relative_error(out, ref), 1e-4);
}
