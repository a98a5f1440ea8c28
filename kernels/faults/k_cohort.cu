// Scores of m samples against n profiles: c = a b of half-precision values, summed in FP32; 128 x 128 a block, 8 x 8 a thread.
#include "h_harness.cuh"
#include "pair.cuh"

struct alignas(8) Halves {
    __half v[4];
};

__global__ void __launch_bounds__(256, 2) scores(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, int n, int depth) {
    __shared__ float4 sa[2][8][33], sb[2][8][32];  // [step][k][row or column / 4]
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int i0 = blockIdx.y * 128, j0 = blockIdx.x * 128;
    int ar = t / 2, ak = t % 2 * 4, bk = t / 32, bj = t % 32;
    const Halves* from_a = reinterpret_cast<const Halves*>(a + size_t(i0 + ar) * depth + ak);
    const Halves* from_b = reinterpret_cast<const Halves*>(b + size_t(bk) * n + j0) + bj;
    float sum[8][8] = {};
    auto put = [&](int stage, Halves va, Halves vb) {
        float* column = reinterpret_cast<float*>(&sa[stage][ak][0]) + ar;
#pragma unroll
        for (int k = 0; k < 4; ++k) column[k * 132] = __half2float(va.v[k]);
        sb[stage][bk][bj] = make_float4(__half2float(vb.v[0]), __half2float(vb.v[1]), __half2float(vb.v[2]), __half2float(vb.v[3]));
    };
    put(0, from_a[0], from_b[0]);
    __syncthreads();
    int steps = depth / 8;
    for (int s = 0; s < steps; ++s) {
        Halves va, vb;
        if (s + 1 < steps) {
            va = from_a[(s + 1) * 2];
            vb = from_b[size_t(s + 1) * 2 * n];
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            float4 a0 = sa[s & 1][k][ty], a1 = sa[s & 1][k][16 + ty], b0 = sb[s & 1][k][tx], b1 = sb[s & 1][k][16 + tx];
            float rows[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            float columns[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(rows[i], columns[j], sum[i][j]);
        }
        if (s + 1 < steps) put((s + 1) & 1, va, vb);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        float4* to = reinterpret_cast<float4*>(c + size_t(i0 + i / 4 * 64 + ty * 4 + i % 4) * n + j0);
        to[tx] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        to[16 + tx] = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int m = positive(args, "m", 4096, 1 << 15), n = positive(args, "n", 4224, 1 << 15), depth = positive(args, "k", 1024, 1 << 15);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && depth % 8 == 0, "--m and --n must be multiples of 128 and --k of 8");
    size_t cells = size_t(m) * n;
    __half *a = device_alloc<__half>(size_t(m) * depth), *b = device_alloc<__half>(size_t(n) * depth);
    float* c = device_alloc<float>(cells);
    fill_uniform(a, size_t(m) * depth, key, -1.0f, 1.0f);
    fill_uniform(b, size_t(n) * depth, key + 1, -1.0f, 1.0f);
    poison(c, cells * sizeof(float));
    auto launch = [&] { scores<<<dim3(n / 128, m / 128), 256>>>(a, b, c, n, depth); };
    launch_once(launch);
    std::vector<__half> ha = to_host(a, size_t(m) * depth), hb = to_host(b, size_t(n) * depth);
    auto wanted = [&](size_t at) {
        double sum = 0;
        for (int k = 0; k < depth; ++k) sum += double(__half2float(ha[at / n * depth + k])) * double(__half2float(hb[size_t(k) * n + at % n]));
        return sum;
    };
    double error = sampled_error(to_host(c, cells), wanted);
    return report("faults/k-cohort", median_us(launch, reps), 2.0 * cells * depth, 0, error, 1e-5);
}
