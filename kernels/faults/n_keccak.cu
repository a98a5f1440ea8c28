// Keccak-f[1600]: absorbs messages of four blocks of 136 bytes, a message a thread (words interleaved over the messages), and keeps
// 32 bytes of digest. `fault` asks for eight blocks of 256 an SM (32 registers for a state of 50), `fix` for two.
#include "h_harness.cuh"

using Word = unsigned long long;
constexpr int kRate = 17, kBlocks = 4, kDigest = 4, kThreads = 256;

__constant__ Word kRound[24] = {
    0x0000000000000001ull, 0x0000000000008082ull, 0x800000000000808aull, 0x8000000080008000ull, 0x000000000000808bull, 0x0000000080000001ull,
    0x8000000080008081ull, 0x8000000000008009ull, 0x000000000000008aull, 0x0000000000000088ull, 0x0000000080008009ull, 0x000000008000000aull,
    0x000000008000808bull, 0x800000000000008bull, 0x8000000000008089ull, 0x8000000000008003ull, 0x8000000000008002ull, 0x8000000000000080ull,
    0x000000000000800aull, 0x800000008000000aull, 0x8000000080008081ull, 0x8000000000008080ull, 0x0000000080000001ull, 0x8000000080008008ull};

template <int kBits>
__device__ __forceinline__ Word rotated(Word x) {
    if constexpr (kBits == 0) return x;
    else return x << kBits | x >> (64 - kBits);
}

// rho and pi: lane (x, y) goes to (y, 2x + 3y), turned by its offset.
template <int kLane>
__device__ __forceinline__ void move(const Word (&a)[25], Word (&b)[25]) {
    constexpr int offset[25] = {0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14};
    constexpr int x = kLane % 5, y = kLane / 5;
    b[y + 5 * ((2 * x + 3 * y) % 5)] = rotated<offset[kLane]>(a[kLane]);
    if constexpr (kLane < 24) move<kLane + 1>(a, b);
}

__device__ __forceinline__ void round_of(Word (&a)[25], Word constant) {
    Word c[5], b[25];
#pragma unroll
    for (int x = 0; x < 5; ++x) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
#pragma unroll
    for (int x = 0; x < 5; ++x) {
        Word d = c[(x + 4) % 5] ^ rotated<1>(c[(x + 1) % 5]);
#pragma unroll
        for (int y = 0; y < 5; ++y) a[x + 5 * y] ^= d;
    }
    move<0>(a, b);
#pragma unroll
    for (int i = 0; i < 25; ++i) a[i] = b[i] ^ (~b[i / 5 * 5 + (i % 5 + 1) % 5] & b[i / 5 * 5 + (i % 5 + 2) % 5]);
    a[0] ^= constant;
}

__device__ __forceinline__ void absorb(const Word* __restrict__ in, Word* __restrict__ digest, int messages) {
    int m = blockIdx.x * kThreads + threadIdx.x;
    if (m >= messages) return;
    Word a[25] = {};
#pragma unroll 1
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int w = 0; w < kRate; ++w) a[w] ^= in[size_t(block * kRate + w) * messages + m];
#pragma unroll 1
        for (int r = 0; r < 24; ++r) round_of(a, kRound[r]);
    }
#pragma unroll
    for (int w = 0; w < kDigest; ++w) digest[size_t(w) * messages + m] = a[w];
}

__global__ void __launch_bounds__(kThreads, 8) keccak_eight(const Word* __restrict__ in, Word* __restrict__ digest, int messages) {
    absorb(in, digest, messages);
}

__global__ void __launch_bounds__(kThreads, 2) keccak_two(const Word* __restrict__ in, Word* __restrict__ digest, int messages) {
    absorb(in, digest, messages);
}

// The plain text of the standard, with loops and modulo, on the host.
void host_keccak(const std::vector<Word>& in, int messages, int m, Word digest[kDigest]) {
    Word a[5][5] = {}, round_constant[24];
    CHECK_CUDA(cudaMemcpyFromSymbol(round_constant, kRound, sizeof round_constant));
    for (int block = 0; block < kBlocks; ++block) {
        for (int w = 0; w < kRate; ++w) a[w % 5][w / 5] ^= in[size_t(block * kRate + w) * messages + m];
        for (int r = 0; r < 24; ++r) {
            Word c[5], b[5][5];
            for (int x = 0; x < 5; ++x) c[x] = a[x][0] ^ a[x][1] ^ a[x][2] ^ a[x][3] ^ a[x][4];
            for (int x = 0; x < 5; ++x)
                for (int y = 0; y < 5; ++y) a[x][y] ^= c[(x + 4) % 5] ^ (c[(x + 1) % 5] << 1 | c[(x + 1) % 5] >> 63);
            int x = 1, y = 0;
            b[0][0] = a[0][0];
            for (int t = 0; t < 24; ++t) {
                int turn = (t + 1) * (t + 2) / 2 % 64;
                b[y][(2 * x + 3 * y) % 5] = turn ? a[x][y] << turn | a[x][y] >> (64 - turn) : a[x][y];
                int next = (2 * x + 3 * y) % 5;
                x = y;
                y = next;
            }
            for (int i = 0; i < 5; ++i)
                for (int j = 0; j < 5; ++j) a[i][j] = b[i][j] ^ (~b[(i + 1) % 5][j] & b[(i + 2) % 5][j]);
            a[0][0] ^= round_constant[r];
        }
    }
    for (int w = 0; w < kDigest; ++w) digest[w] = a[w % 5][w / 5];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int messages = positive(args, "messages", 1048576, 1 << 23);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t words = size_t(messages) * kRate * kBlocks;
    Word *in = device_alloc<Word>(words), *digest = device_alloc<Word>(size_t(messages) * kDigest);
    fill_uniform(reinterpret_cast<uint8_t*>(in), words * 8, key, 0, 1);
    poison(digest, size_t(messages) * kDigest * 8);
    unsigned blocks = blocks_for(messages, kThreads);
    auto launch = [&] {
        if (fix) keccak_two<<<blocks, kThreads>>>(in, digest, messages);
        else keccak_eight<<<blocks, kThreads>>>(in, digest, messages);
    };
    launch_once(launch);
    auto host = to_host(in, words), got = to_host(digest, size_t(messages) * kDigest);
    int wrong = 0;
    for (int m = 0; m < messages; m += 509) {
        Word want[kDigest];
        host_keccak(host, messages, m, want);
        for (int w = 0; w < kDigest; ++w) wrong += got[size_t(w) * messages + m] != want[w];
    }
    return report("faults/n-keccak", median_us(launch, reps), 0, 8.0 * (kRate * kBlocks + kDigest) * messages, wrong, 0);
}
