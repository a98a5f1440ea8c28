// XOR of several ChaCha20-style blocks a thread: additions, XORs and rotations only.
#include "pair.cuh"

__host__ __device__ inline uint32_t rotate(uint32_t v, int s) { return (v << s) | (v >> (32 - s)); }
__host__ __device__ inline void quarter(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    a += b, d = rotate(d ^ a, 16);
    c += d, b = rotate(b ^ c, 12);
    a += b, d = rotate(d ^ a, 8);
    c += d, b = rotate(b ^ c, 7);
}
__host__ __device__ inline uint32_t stream_word(uint32_t k0, uint32_t k1, int blocks) {
    uint32_t sum = 0;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        uint32_t x[16];
#pragma unroll
        for (int j = 0; j < 16; ++j) x[j] = (j & 1 ? k1 : k0) + 0x9e3779b9u * j;
        x[12] += block;
#pragma unroll 1
        for (int r = 0; r < 10; ++r) {
            quarter(x[0], x[4], x[8], x[12]), quarter(x[1], x[5], x[9], x[13]);
            quarter(x[2], x[6], x[10], x[14]), quarter(x[3], x[7], x[11], x[15]);
            quarter(x[0], x[5], x[10], x[15]), quarter(x[1], x[6], x[11], x[12]);
            quarter(x[2], x[7], x[8], x[13]), quarter(x[3], x[4], x[9], x[14]);
        }
#pragma unroll
        for (int j = 0; j < 16; ++j) sum ^= x[j];
    }
    return sum;
}

__global__ void __launch_bounds__(256) keystream(const uint32_t* key, uint32_t* out, int blocks, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = stream_word(key[i], key[i + n], blocks);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int blocks = int(args.get("blocks", 16)), n = int(args.get("n", 1048576)), reps = repeats(args);
    auto start = seed(args);
    args.done();
    require(blocks > 0 && n > 0, "--blocks and --n must be positive");
    uint32_t *key = device_alloc<uint32_t>(2 * size_t(n)), *out = device_alloc<uint32_t>(n);
    fill_uniform(key, 2 * size_t(n), start, 0.f, 4294967296.f);
    auto hk = to_host(key, 2 * size_t(n));
    auto reference = [&](size_t i) { return stream_word(hk[i], hk[i + n], blocks); };
    auto launch = [&] { keystream<<<(n + 255) / 256, 256>>>(key, out, blocks, n); };
    return run_checked("faults/keystream", reps, launch, out, n, reference, 0, 12.0 * n, 0.0);
}
