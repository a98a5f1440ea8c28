// Scores of product-quantised vectors against four queries: 32 codes of 4 bits a vector look up a table in shared memory that
// is laid out so that every lane reads its own banks.
#include "g_util.cuh"
using namespace held;

constexpr int kCodes = 32;

__global__ void __launch_bounds__(512, 2) code_scores(const uint4* codes, const float4* table, float4* out, int n) {
    extern __shared__ __align__(128) float4 copies[];  // [code][value][8 copies]
    for (int i = threadIdx.x; i < kCodes * 16 * 8; i += 512) copies[i] = table[i / 8];
    __syncthreads();
    const char* mine = reinterpret_cast<const char*>(copies + threadIdx.x % 8);
    for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += gridDim.x * 512) {
        uint4 v = codes[i];
        uint32_t w[4] = {v.x, v.y, v.z, v.w};
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int c = 0; c < kCodes; ++c) {
            uint32_t value = (w[c / 8] >> (c % 8 * 4)) & 15;
            float4 t = *reinterpret_cast<const float4*>(mine + c * 2048 + value * 128);
            sum.x += t.x;
            sum.y += t.y;
            sum.z += t.z;
            sum.w += t.w;
        }
        out[i] = sum;
    }
}

__global__ void reference_codes(const uint8_t* codes, const float4* table, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s[4] = {};
    for (int c = 0; c < kCodes; ++c) {
        int value = codes[size_t(i) * 16 + c / 2] >> (c % 2 * 4) & 15;
        float4 t = table[c * 16 + value];
        s[0] += t.x, s[1] += t.y, s[2] += t.z, s[3] += t.w;
    }
    out[i] = make_float4(float(s[0]), float(s[1]), float(s[2]), float(s[3]));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = int(args.get("n", 16777216));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= 134217728, "--n out of range");
    uint8_t* codes = device_alloc<uint8_t>(size_t(n) * 16);
    float4 *table = device_alloc<float4>(kCodes * 16), *out = device_alloc<float4>(n), *ref = device_alloc<float4>(n);
    fill_uniform(codes, size_t(n) * 16, s, 0.f, 1.f);
    fill_uniform(reinterpret_cast<float*>(table), kCodes * 64, s + 1, -1.0f, 1.0f);
    reference_codes<<<(n + 255) / 256, 256>>>(codes, table, ref, n);
    poison(out, size_t(n) * 16);
    finish();
    size_t shared = size_t(kCodes) * 16 * 8 * 16;
    allow_shared(code_scores, shared);
    int device = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    auto launch = [&] { code_scores<<<sms * 2, 512, shared>>>(reinterpret_cast<const uint4*>(codes), table, out, n); };
    launch();
    finish();
    double error = device_error(reinterpret_cast<float*>(out), reinterpret_cast<float*>(ref), size_t(n) * 4);
    return report("faults/g-codes", median_us(launch, reps), 0, 32.0 * n, error, 1e-5);
}
