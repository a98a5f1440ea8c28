// Hadamard transform of vectors of 4096 floats (the rotation before a quantisation), one block a vector, radix 16.
#include "h_harness.cuh"

constexpr int kSize = 4096, kThreads = 256;

template <bool kPad>
__device__ int place(int i) {
    return kPad ? i + i / 16 : i;
}

__device__ void butterfly(float (&v)[16]) {
#pragma unroll
    for (int s = 1; s < 16; s *= 2)
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!(i & s)) {
                float a = v[i], b = v[i + s];
                v[i] = a + b;
                v[i + s] = a - b;
            }
}

template <bool kPad>
__global__ void __launch_bounds__(kThreads) hadamard(const float* __restrict__ in, float* __restrict__ out) {
    __shared__ float s[kPad ? kSize + kSize / 16 : kSize];
    int t = threadIdx.x;
    size_t base = size_t(blockIdx.x) * kSize;
    float v[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = in[base + k * 256 + t];
    butterfly(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) s[place<kPad>(k * 256 + t)] = v[k];
    __syncthreads();
    int middle = t / 16 * 256 + t % 16;
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = s[place<kPad>(middle + k * 16)];
    butterfly(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) s[place<kPad>(middle + k * 16)] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = s[place<kPad>(t * 16 + k)];
    butterfly(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) s[place<kPad>(t * 16 + k)] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) out[base + k * 256 + t] = s[place<kPad>(k * 256 + t)] * 0.015625f;
}

struct Reference {
    const float* in;
    __device__ double operator()(size_t i) const {
        const float* p = in + i / kSize * kSize;
        unsigned row = unsigned(i % kSize);
        double sum = 0;
        for (unsigned j = 0; j < kSize; ++j) sum += __popc(row & j) & 1 ? -double(p[j]) : double(p[j]);
        return sum / 64;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int vectors = positive(args, "vectors", 9000, 1 << 18);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(vectors) * kSize;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    poison(out, n * sizeof(float));
    auto launch = [&] {
        if (fix) hadamard<true><<<vectors, kThreads>>>(in, out);
        else hadamard<false><<<vectors, kThreads>>>(in, out);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in});
    double us = median_us(launch, reps);
    return report("faults/h-hadamard", us, 0, 8.0 * double(n), error, 1e-5);
}
