// A radiance field of sixteen small networks (27 features of a point, two hidden layers of 32, density and colour), exported with their
// trained weights as literals in the code. The points lie sorted by network, so that a warp never diverges.
// `fault`: the sixteen warps of a block take a network each; `fix`: all warps of a block take the same one, network after network.
#include "h_harness.cuh"

constexpr int kNetworks = 16, kIn = 27, kHidden = 32, kOut = 4, kThreads = 512, kWarps = kThreads / 32;

// Stands for the exported numbers: weight `index` of a layer, uniform in [-0.25, 0.25).
__host__ __device__ constexpr float literal(int network, int layer, int index) {
    unsigned x = unsigned(network * 3 + layer) * 2654435761u + unsigned(index) * 40503u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    return (float((x >> 8) & 0xffffu) - 32768.0f) * 0x1p-17f;
}

template <int NETWORK, int LAYER, int IN, int OUT>
__device__ __forceinline__ void layer(const float (&in)[IN], float (&out)[OUT]) {
#pragma unroll
    for (int o = 0; o < OUT; ++o) out[o] = literal(NETWORK, LAYER, OUT * IN + o);
#pragma unroll
    for (int i = 0; i < IN; ++i)
#pragma unroll
        for (int o = 0; o < OUT; ++o) out[o] = fmaf(literal(NETWORK, LAYER, o * IN + i), in[i], out[o]);
}

template <int SIZE>
__device__ __forceinline__ void rectify(float (&x)[SIZE]) {
#pragma unroll
    for (int i = 0; i < SIZE; ++i) x[i] = fmaxf(x[i], 0.0f);
}

// Coordinates, then sine and cosine of each at four frequencies.
__device__ __forceinline__ void encode(float3 at, float (&x)[kIn]) {
    const float c[3] = {at.x, at.y, at.z};
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        x[d] = c[d];
#pragma unroll
        for (int f = 0; f < 4; ++f) {
            float angle = c[d] * float(1 << f);
            x[3 + d * 8 + f * 2] = __sinf(angle);
            x[4 + d * 8 + f * 2] = __cosf(angle);
        }
    }
}

// `count` points of this network; the calling warp takes every `stride`th group of 32 from `begin` on.
template <int NETWORK>
__device__ __forceinline__ void field(const float* __restrict__ points, float4* __restrict__ out, int count, int begin, int stride) {
    const size_t first = size_t(NETWORK) * count;
#pragma unroll 1
    for (int i = begin * 32 + threadIdx.x % 32; i < count; i += stride * 32) {
        const float* p = points + (first + i) * 3;
        float x[kIn], a[kHidden], b[kHidden], y[kOut];
        encode(make_float3(p[0], p[1], p[2]), x);
        layer<NETWORK, 0>(x, a);
        rectify(a);
        layer<NETWORK, 1>(a, b);
        rectify(b);
        layer<NETWORK, 2>(b, y);
        out[first + i] = make_float4(y[0], y[1], y[2], y[3]);
    }
}

template <bool TOGETHER>
__global__ void __launch_bounds__(kThreads, 1) field_networks(const float* __restrict__ points, float4* __restrict__ out, int count) {
    const int warp = threadIdx.x / 32;
    int network, begin, stride;
    if (TOGETHER) {  // a block a network: blocks 0, 1, … of network 0 first
        int each = gridDim.x / kNetworks;
        network = blockIdx.x / each;
        begin = blockIdx.x % each * kWarps + warp;
        stride = each * kWarps;
    } else {
        network = warp;
        begin = blockIdx.x;
        stride = gridDim.x;
    }
    switch (network) {
        case 0: return field<0>(points, out, count, begin, stride);
        case 1: return field<1>(points, out, count, begin, stride);
        case 2: return field<2>(points, out, count, begin, stride);
        case 3: return field<3>(points, out, count, begin, stride);
        case 4: return field<4>(points, out, count, begin, stride);
        case 5: return field<5>(points, out, count, begin, stride);
        case 6: return field<6>(points, out, count, begin, stride);
        case 7: return field<7>(points, out, count, begin, stride);
        case 8: return field<8>(points, out, count, begin, stride);
        case 9: return field<9>(points, out, count, begin, stride);
        case 10: return field<10>(points, out, count, begin, stride);
        case 11: return field<11>(points, out, count, begin, stride);
        case 12: return field<12>(points, out, count, begin, stride);
        case 13: return field<13>(points, out, count, begin, stride);
        case 14: return field<14>(points, out, count, begin, stride);
        default: return field<15>(points, out, count, begin, stride);
    }
}

// One output; the hidden layers in double, weights computed as they are used.
struct Reference {
    const float* points;
    int count;
    __device__ double operator()(size_t i) const {
        size_t point = i / kOut;
        int network = int(point / count), o = int(i % kOut);
        double x[kIn], a[kHidden], b[kHidden];
        for (int d = 0; d < 3; ++d) {
            float c = points[point * 3 + d];
            x[d] = c;
            for (int f = 0; f < 4; ++f) {
                x[3 + d * 8 + f * 2] = sin(double(c) * (1 << f));
                x[4 + d * 8 + f * 2] = cos(double(c) * (1 << f));
            }
        }
        for (int h = 0; h < kHidden; ++h) {
            double sum = literal(network, 0, kHidden * kIn + h);
            for (int j = 0; j < kIn; ++j) sum += literal(network, 0, h * kIn + j) * x[j];
            a[h] = fmax(sum, 0.0);
        }
        for (int h = 0; h < kHidden; ++h) {
            double sum = literal(network, 1, kHidden * kHidden + h);
            for (int j = 0; j < kHidden; ++j) sum += literal(network, 1, h * kHidden + j) * a[j];
            b[h] = fmax(sum, 0.0);
        }
        double sum = literal(network, 2, kOut * kHidden + o);
        for (int j = 0; j < kHidden; ++j) sum += literal(network, 2, o * kHidden + j) * b[j];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int count = positive(args, "count", 270336, 1 << 22), blocks = positive(args, "blocks", 1056, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(blocks % kNetworks == 0, "--blocks must be a multiple of 16");
    size_t n = size_t(kNetworks) * count;
    float *points = device_alloc<float>(n * 3), *out = device_alloc<float>(n * kOut);
    fill_uniform(points, n * 3, key, -3.0f, 3.0f);
    poison(out, n * kOut * sizeof(float));
    auto kernel = fix ? field_networks<true> : field_networks<false>;
    auto launch = [&] { kernel<<<blocks, kThreads>>>(points, reinterpret_cast<float4*>(out), count); };
    launch_once(launch);
    double error = device_error(out, n * kOut, Reference{points, count});
    double flops = 2.0 * double(n) * (kIn * kHidden + kHidden * kHidden + kHidden * kOut);
    return report("faults/q-experts", median_us(launch, reps), flops, 0, error, 1e-4);
}
