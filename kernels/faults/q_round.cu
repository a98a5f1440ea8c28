// AdamW on bf16 weights without a master copy: the new weight is rounded up or down at random, in proportion, by a counter-based
// generator, so that small steps are not lost. Gradients bf16, both moments float; eight elements a lane, clipped by the gradients' norm.
// `fault`: IEEE root and division, powers in the kernel, ten rounds of Philox; `fix`: approximate root and reciprocal, powers from the host, one
// multiplicative hash. The memory is the limit in both.
#include "h_harness.cuh"

struct Hyper {
    float rate, beta1, beta2, epsilon, decay, most;  // most: the largest norm of the gradients
    int step;
};

struct Random4 {
    unsigned x, y, z, w;
};

// Philox 4x32 with its published multipliers and key increments.
__device__ __forceinline__ Random4 philox(unsigned long long counter, unsigned long long key) {
    Random4 c{unsigned(counter), unsigned(counter >> 32), 0x1b873593u, 0x85ebca6bu};
    unsigned k0 = unsigned(key), k1 = unsigned(key >> 32);
#pragma unroll
    for (int r = 0; r < 10; ++r) {
        unsigned high0 = __umulhi(0xd2511f53u, c.x), low0 = 0xd2511f53u * c.x;
        unsigned high1 = __umulhi(0xcd9e8d57u, c.z), low1 = 0xcd9e8d57u * c.z;
        c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

__device__ __forceinline__ Random4 hashed(unsigned long long counter, unsigned long long key) {
    unsigned x = (unsigned(counter) ^ unsigned(key)) * 0x9e3779b1u;
    x = (x ^ (x >> 15)) * 0x85ebca77u;
    x ^= x >> 13;
    unsigned y = (x + 0x68e31da4u) * 0xc2b2ae3du, z = (x ^ 0xb5297a4du) * 0x27d4eb2fu, w = (y ^ (y >> 16)) * 0x165667b1u;
    return {x, y ^ (y >> 15), z ^ (z >> 14), w ^ (w >> 15)};
}

// bf16 bits of x, rounded away from zero with the probability that the 16 bits cut off stand for.
__device__ __forceinline__ unsigned round_random(float x, unsigned random16) {
    return (__float_as_uint(x) + random16) >> 16;
}

template <bool EXACT>
__global__ void __launch_bounds__(256) adamw_round(uint4* __restrict__ p, const uint4* __restrict__ g, float4* __restrict__ m,
                                                   float4* __restrict__ v, const float* __restrict__ norm, Hyper h, float correct1,
                                                   float correct2, unsigned long long key, size_t vectors) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= vectors) return;
    uint4 weights = p[i], gradients = g[i];
    float4 m_in[2] = {m[2 * i], m[2 * i + 1]}, v_in[2] = {v[2 * i], v[2 * i + 1]};
    float clip = fminf(1.0f, h.most / (*norm + 1e-6f));
    if (EXACT) {
        correct1 = 1.0f / (1.0f - powf(h.beta1, float(h.step)));
        correct2 = 1.0f / (1.0f - powf(h.beta2, float(h.step)));
    }
    Random4 r = EXACT ? philox(i, key) : hashed(i, key);
    const unsigned random[4] = {r.x, r.y, r.z, r.w}, w[4] = {weights.x, weights.y, weights.z, weights.w};
    const unsigned d[4] = {gradients.x, gradients.y, gradients.z, gradients.w};
    float *mine = reinterpret_cast<float*>(m_in), *square = reinterpret_cast<float*>(v_in);
    unsigned out[4];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        float weight = __uint_as_float(e % 2 ? w[e / 2] & 0xffff0000u : w[e / 2] << 16);
        float gradient = __uint_as_float(e % 2 ? d[e / 2] & 0xffff0000u : d[e / 2] << 16) * clip;
        mine[e] = h.beta1 * mine[e] + (1.0f - h.beta1) * gradient;
        square[e] = h.beta2 * square[e] + (1.0f - h.beta2) * gradient * gradient;
        float update;
        if (EXACT) {
            update = mine[e] * correct1 / (sqrtf(square[e] * correct2) + h.epsilon);
        } else {
            float root;
            asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(square[e] * correct2));
            update = __fdividef(mine[e] * correct1, root + h.epsilon);
        }
        weight -= h.rate * (update + h.decay * weight);
        unsigned bits = round_random(weight, e % 2 ? random[e / 2] >> 16 : random[e / 2] & 0xffffu);
        out[e / 2] = e % 2 ? out[e / 2] | bits << 16 : bits;
    }
    p[i] = make_uint4(out[0], out[1], out[2], out[3]);
    m[2 * i] = m_in[0];
    m[2 * i + 1] = m_in[1];
    v[2 * i] = v_in[0];
    v[2 * i + 1] = v_in[1];
}

// The exact new weight (kind 0), first moment (1) or second moment (2) from copies of what was there before.
struct Reference {
    const __nv_bfloat16 *p, *g;
    const float *m, *v, *norm;
    Hyper h;
    int kind;
    __device__ double operator()(size_t i) const {
        double clip = fmin(1.0, double(h.most) / (double(*norm) + 1e-6)), gradient = double(__bfloat162float(g[i])) * clip;
        double first = h.beta1 * double(m[i]) + (1.0 - h.beta1) * gradient;
        double second = h.beta2 * double(v[i]) + (1.0 - h.beta2) * gradient * gradient;
        if (kind == 1) return first;
        if (kind == 2) return second;
        double correct1 = 1.0 - pow(double(h.beta1), double(h.step)), correct2 = 1.0 - pow(double(h.beta2), double(h.step));
        double weight = double(__bfloat162float(p[i])), update = first / correct1 / (sqrt(second / correct2) + double(h.epsilon));
        return weight - double(h.rate) * (update + double(h.decay) * weight);
    }
};

__global__ void evaluate(Reference ref, double* out, size_t n) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = ref(i);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 134217728, 1 << 28);
    Hyper h{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, positive(args, "step", 12, 1000000)};
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 8 == 0, "--n must be a multiple of 8");
    auto *p = device_alloc<__nv_bfloat16>(n), *g = device_alloc<__nv_bfloat16>(n), *p0 = device_alloc<__nv_bfloat16>(n);
    float *m = device_alloc<float>(n), *v = device_alloc<float>(n), *m0 = device_alloc<float>(n), *v0 = device_alloc<float>(n);
    float* norm = device_alloc<float>(1);
    for (auto* to : {p, p0}) fill_uniform(to, n, key, -1.0f, 1.0f);
    for (auto* to : {m, m0}) fill_uniform(to, n, key + 1, -0.5f, 0.5f);
    for (auto* to : {v, v0}) fill_uniform(to, n, key + 2, 0.01f, 0.3f);
    fill_uniform(g, n, key + 3, -1.0f, 1.0f);
    fill_uniform(norm, 1, key + 4, 1.5f, 3.0f);
    float correct1 = 1.0f / float(1.0 - std::pow(double(h.beta1), h.step)), correct2 = 1.0f / float(1.0 - std::pow(double(h.beta2), h.step));
    size_t vectors = size_t(n) / 8;
    auto kernel = fix ? adamw_round<false> : adamw_round<true>;
    auto launch = [&] {
        kernel<<<blocks_for(vectors, 256), 256>>>(reinterpret_cast<uint4*>(p), reinterpret_cast<const uint4*>(g), reinterpret_cast<float4*>(m),
                                                  reinterpret_cast<float4*>(v), norm, h, correct1, correct2, key, vectors);
    };
    launch_once(launch);
    double first = device_error(m, n, Reference{p0, g, m0, v0, norm, h, 1}), second = device_error(v, n, Reference{p0, g, m0, v0, norm, h, 2});
    require(first <= 1e-5 && second <= 1e-5, "moments are off by " + std::to_string(first) + " and " + std::to_string(second));
    // Rounding at random is off by up to one unit in the last of 8 bits, and by nothing on average.
    size_t sample = std::min<size_t>(n, 1 << 20);
    double* exact = device_alloc<double>(sample);
    evaluate<<<blocks_for(sample, 256), 256>>>(Reference{p0, g, m0, v0, norm, h, 0}, exact, sample);
    CHECK_CUDA(cudaGetLastError());
    std::vector<double> want = to_host(exact, sample);
    std::vector<__nv_bfloat16> got = to_host(p, sample);
    double bias = 0;
    for (size_t i = 0; i < sample; ++i) {
        int exponent;
        std::frexp(want[i], &exponent);
        double off = (double(__bfloat162float(got[i])) - want[i]) / std::ldexp(1.0, exponent - 8);
        require(std::fabs(off) <= 1.05 || std::fabs(want[i]) < 1e-3, "weight " + std::to_string(i) + " is off by " + std::to_string(off) + " units");
        if (std::fabs(want[i]) >= 1e-3) bias += off / double(sample);
    }
    require(std::fabs(bias) < 0.01 + 2 / std::sqrt(double(sample)), "weights are off by " + std::to_string(bias) + " units on average");
    double error = device_error(p, n, Reference{p0, g, m0, v0, norm, h, 0});
    return report("faults/q-round", median_us(launch, reps), 0, 22.0 * n, error, 5e-3);
}
