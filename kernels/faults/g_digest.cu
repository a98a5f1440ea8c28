// SHA-256 of a 64-byte message a nonce (eight words given, the nonce, then padding): the first word of every digest.
#include "g_util.cuh"
using namespace held;

struct Prefix { uint32_t w[8]; };

__host__ __device__ __forceinline__ uint32_t turn(uint32_t x, int by) {
#ifdef __CUDA_ARCH__
    return __funnelshift_r(x, x, by);
#else
    return x >> by | x << (32 - by);
#endif
}

__host__ __device__ __forceinline__ uint32_t digest_word(const Prefix& p, uint32_t nonce) {
    constexpr uint32_t kRound[64] = {
        0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
        0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
        0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
        0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
        0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
        0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
        0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
        0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};
    constexpr uint32_t kStart[8] = {
        0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    uint32_t w[16] = {p.w[0], p.w[1], p.w[2], p.w[3], p.w[4], p.w[5], p.w[6], p.w[7], nonce, 0x80000000u, 0, 0, 0, 0, 0, 36 * 8};
    uint32_t a = kStart[0], b = kStart[1], c = kStart[2], d = kStart[3], e = kStart[4], f = kStart[5], g = kStart[6], h = kStart[7];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        if (i >= 16) {
            uint32_t x = w[(i + 1) % 16], y = w[(i + 14) % 16];
            w[i % 16] += (turn(x, 7) ^ turn(x, 18) ^ (x >> 3)) + w[(i + 9) % 16] + (turn(y, 17) ^ turn(y, 19) ^ (y >> 10));
        }
        uint32_t t1 = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i % 16];
        uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    return a + kStart[0];
}

__global__ void __launch_bounds__(256) digest_nonces(const __grid_constant__ Prefix p, uint32_t first, uint32_t* out, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = digest_word(p, first + i);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = int(args.get("n", 4194304));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(n > 0 && n <= 268435456, "--n out of range");
    Prefix p;
    for (int i = 0; i < 8; ++i) p.w[i] = uint32_t(diagnose_hash(s + i));
    uint32_t first = uint32_t(diagnose_hash(s + 8)), *out = device_alloc<uint32_t>(n);
    poison(out, size_t(n) * 4);
    auto launch = [&] { digest_nonces<<<(n + 255) / 256, 256>>>(p, first, out, n); };
    launch();
    finish();
    std::vector<uint32_t> host = to_host(out, n);
    long long wrong = 0;
    for (int i = 0; i < n; ++i)
        if (i % 16 == 0 || host[i] == 0xffffffffu) wrong += host[i] != digest_word(p, first + uint32_t(i));
    return report("faults/g-digest", median_us(launch, reps), 0, 4.0 * n, double(wrong), 0);
}
