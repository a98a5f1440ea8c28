// Rotary position embedding on bf16 [token][head][128], neighbouring pairs.
#include "h_harness.cuh"

constexpr int kPairs = 64;

__global__ void rotate(const __nv_bfloat162* __restrict__ in, __nv_bfloat162* __restrict__ out, int heads) {
    int token = blockIdx.x;
    size_t base = size_t(token) * heads * kPairs;
    for (int i = threadIdx.x; i < heads * kPairs; i += blockDim.x) {
        float frequency = powf(10000.0f, -2.0f * (i % kPairs) / (2.0f * kPairs));
        float s, c;
        sincosf(token * frequency, &s, &c);
        float2 v = __bfloat1622float2(in[base + i]);
        out[base + i] = __floats2bfloat162_rn(v.x * c - v.y * s, v.x * s + v.y * c);
    }
}

__device__ unsigned turn(unsigned word, float c, float s) {
    float x = __uint_as_float(word << 16), y = __uint_as_float(word & 0xffff0000u);
    __nv_bfloat162 b = __floats2bfloat162_rn(x * c - y * s, x * s + y * c);
    unsigned r;
    memcpy(&r, &b, 4);
    return r;
}

// table: (cos, sin) of [token][pair]; a thread turns four pairs.
__global__ void rotate_table(const uint4* __restrict__ in, const float4* __restrict__ table, uint4* __restrict__ out,
                             int heads) {
    int token = blockIdx.x;
    size_t base = size_t(token) * heads * (kPairs / 4);
    const float4* row = table + size_t(token) * (kPairs / 2);
    for (int i = threadIdx.x; i < heads * (kPairs / 4); i += blockDim.x) {
        uint4 v = in[base + i];
        int q = i % (kPairs / 4);
        float4 a = row[q * 2], b = row[q * 2 + 1];
        v.x = turn(v.x, a.x, a.y);
        v.y = turn(v.y, a.z, a.w);
        v.z = turn(v.z, b.x, b.y);
        v.w = turn(v.w, b.z, b.w);
        out[base + i] = v;
    }
}

struct Reference {
    const __nv_bfloat16* in;
    int heads;
    __device__ double operator()(size_t i) const {
        size_t pair = i / 2;
        double frequency = pow(10000.0, -double(pair % kPairs) / kPairs);
        double angle = double(pair / (size_t(heads) * kPairs)) * frequency;
        double x = __bfloat162float(in[pair * 2]), y = __bfloat162float(in[pair * 2 + 1]);
        return i % 2 ? x * sin(angle) + y * cos(angle) : x * cos(angle) - y * sin(angle);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tokens = positive(args, "tokens", 12288, 1 << 17), heads = positive(args, "heads", 24, 128);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(tokens) * heads * kPairs * 2;
    auto *in = device_alloc<__nv_bfloat16>(n), *out = device_alloc<__nv_bfloat16>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * 2);
    std::vector<float> table(size_t(tokens) * kPairs * 2);
    for (int t = 0; t < tokens; ++t)
        for (int p = 0; p < kPairs; ++p) {
            double angle = t * std::pow(10000.0, -double(p) / kPairs);
            table[(size_t(t) * kPairs + p) * 2] = float(std::cos(angle));
            table[(size_t(t) * kPairs + p) * 2 + 1] = float(std::sin(angle));
        }
    float* device_table = device_alloc<float>(table.size());
    CHECK_CUDA(cudaMemcpy(device_table, table.data(), table.size() * sizeof(float), cudaMemcpyHostToDevice));
    auto launch = [&] {
        if (fix)
            rotate_table<<<tokens, 384>>>(reinterpret_cast<uint4*>(in), reinterpret_cast<float4*>(device_table),
                                          reinterpret_cast<uint4*>(out), heads);
        else
            rotate<<<tokens, 192>>>(reinterpret_cast<__nv_bfloat162*>(in), reinterpret_cast<__nv_bfloat162*>(out), heads);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, heads});
    double us = median_us(launch, reps);
    return report("faults/h-rope", us, 0, 4.0 * double(n), error, 5e-3);
}
