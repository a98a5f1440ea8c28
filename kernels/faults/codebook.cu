// Sums of codebook vectors: out[row][16] = sum over the row's codes of book[code]. The book lies in shared memory, once for each
// of the eight lanes that one phase of a 16-byte load serves, so that codes of any value never share a bank.
#include "pair.cuh"
constexpr int kCodes = 256, kCopies = 8, kParts = 4;  // 4 x 16 bytes a vector

__global__ void __launch_bounds__(1024, 1) codebook_sum(const float4* book, const uint8_t* codes, float* out, int length, int rows) {
    extern __shared__ __align__(128) float4 shared[];  // [code][part][copy]
    for (int i = threadIdx.x; i < kCodes * kParts * kCopies; i += blockDim.x) shared[i] = book[i / kCopies];
    __syncthreads();
    const float4* mine = shared + threadIdx.x % kCopies;
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
        float4 sum[kParts] = {};
        for (int k = 0; k < length; k += 4) {
            // Codes are stored four a word, words of neighbouring rows side by side.
            uint32_t word = *reinterpret_cast<const uint32_t*>(codes + (size_t(k / 4) * rows + row) * 4);
#pragma unroll
            for (int b = 0; b < 4; ++b) {
                const float4* entry = mine + (word >> (8 * b) & 255u) * (kParts * kCopies);
#pragma unroll
                for (int p = 0; p < kParts; ++p) {
                    float4 v = entry[p * kCopies];
                    sum[p].x += v.x, sum[p].y += v.y, sum[p].z += v.z, sum[p].w += v.w;
                }
            }
        }
#pragma unroll
        for (int p = 0; p < kParts; ++p) reinterpret_cast<float4*>(out)[size_t(row) * kParts + p] = sum[p];
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int rows = int(args.get("rows", 540672)), length = int(args.get("length", 128)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(rows > 0 && length > 0 && length % 4 == 0, "--rows must be positive, --length a multiple of 4");
    size_t n = size_t(rows) * 16, count = size_t(rows) * length;
    float *book = device_alloc<float>(kCodes * 16), *out = device_alloc<float>(n);
    uint8_t* codes = device_alloc<uint8_t>(count);
    fill_uniform(book, kCodes * 16, key, 0.f, 1.f);
    fill_uniform(codes, count, key + 1, 0.f, 256.f);
    auto hb = to_host(book, kCodes * 16);
    auto hc = to_host(codes, count);
    auto reference = [&](size_t i) {
        double sum = 0;
        for (int k = 0; k < length; ++k) sum += hb[hc[(size_t(k / 4) * rows + i / 16) * 4 + k % 4] * 16 + i % 16];
        return sum;
    };
    size_t bytes = kCodes * kParts * kCopies * sizeof(float4);
    allow_smem(codebook_sum, bytes);
    int blocks = sm_count();
    auto launch = [&] { codebook_sum<<<blocks, 1024, bytes>>>(reinterpret_cast<const float4*>(book), codes, out, length, rows); };
    return run_checked("faults/codebook-sum", reps, launch, out, n, reference, 16.0 * count, 1.0 * count + 4.0 * n, 1e-5);
}
