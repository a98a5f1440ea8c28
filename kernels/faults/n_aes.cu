// AES-128 in counter mode with the table that joins S-box and column mix (the other three are its rotations). The key schedule is
// read uniformly from constant memory in both; `fault` has the table there too, `fix` one copy a bank in shared memory.
#include "h_harness.cuh"

constexpr int kBlock = 256;

__constant__ unsigned kKey[44];
__constant__ unsigned kTable[256];

struct ConstantTable {
    __device__ unsigned operator[](unsigned i) const { return kTable[i]; }
};

struct BankedTable {
    const unsigned* entry;  // 256 rows of 32 copies, advanced to the lane's bank
    __device__ unsigned operator[](unsigned i) const { return entry[i * 32]; }
};

__device__ __forceinline__ unsigned turned(unsigned x, int bits) { return __funnelshift_r(x, x, bits); }

template <class Table>
__device__ __forceinline__ uint4 encrypt(uint4 s, const Table& t) {
    s.x ^= kKey[0];
    s.y ^= kKey[1];
    s.z ^= kKey[2];
    s.w ^= kKey[3];
#pragma unroll
    for (int r = 1; r < 10; ++r) {
        uint4 u;
        u.x = t[s.x >> 24] ^ turned(t[s.y >> 16 & 255], 8) ^ turned(t[s.z >> 8 & 255], 16) ^ turned(t[s.w & 255], 24) ^ kKey[4 * r];
        u.y = t[s.y >> 24] ^ turned(t[s.z >> 16 & 255], 8) ^ turned(t[s.w >> 8 & 255], 16) ^ turned(t[s.x & 255], 24) ^ kKey[4 * r + 1];
        u.z = t[s.z >> 24] ^ turned(t[s.w >> 16 & 255], 8) ^ turned(t[s.x >> 8 & 255], 16) ^ turned(t[s.y & 255], 24) ^ kKey[4 * r + 2];
        u.w = t[s.w >> 24] ^ turned(t[s.x >> 16 & 255], 8) ^ turned(t[s.y >> 8 & 255], 16) ^ turned(t[s.z & 255], 24) ^ kKey[4 * r + 3];
        s = u;
    }
    // The S-box is the second byte of an entry.
    auto last = [&](unsigned a, unsigned b, unsigned c, unsigned d, unsigned key) {
        return ((t[a >> 24] << 16 & 0xff000000u) | (t[b >> 16 & 255] << 8 & 0xff0000u) | (t[c >> 8 & 255] & 0xff00u) |
                (t[d & 255] >> 8 & 0xffu)) ^ key;
    };
    return make_uint4(last(s.x, s.y, s.z, s.w, kKey[40]), last(s.y, s.z, s.w, s.x, kKey[41]), last(s.z, s.w, s.x, s.y, kKey[42]),
                      last(s.w, s.x, s.y, s.z, kKey[43]));
}

template <class Table>
__device__ __forceinline__ void counter_mode(const uint4* __restrict__ in, uint4* __restrict__ out, size_t blocks, uint2 nonce,
                                             const Table& table) {
    for (size_t i = size_t(blockIdx.x) * kBlock + threadIdx.x; i < blocks; i += size_t(gridDim.x) * kBlock) {
        uint4 data = in[i], stream = encrypt(make_uint4(nonce.x, nonce.y, unsigned(i >> 32), unsigned(i)), table);
        out[i] = make_uint4(data.x ^ stream.x, data.y ^ stream.y, data.z ^ stream.z, data.w ^ stream.w);
    }
}

__global__ void __launch_bounds__(kBlock) aes_constant(const uint4* __restrict__ in, uint4* __restrict__ out, size_t blocks, uint2 nonce) {
    counter_mode(in, out, blocks, nonce, ConstantTable{});
}

__global__ void __launch_bounds__(kBlock) aes_banked(const uint4* __restrict__ in, uint4* __restrict__ out, size_t blocks, uint2 nonce,
                                                     const unsigned* __restrict__ table) {
    __shared__ unsigned copies[256 * 32];
    for (int i = threadIdx.x; i < 256 * 32; i += kBlock) copies[i] = table[i / 32];
    __syncthreads();
    counter_mode(in, out, blocks, nonce, BankedTable{copies + threadIdx.x % 32});
}

struct Host {
    uint8_t box[256];
    unsigned key[44], table[256];

    static uint8_t doubled(uint8_t x) { return uint8_t(x << 1 ^ (x & 128 ? 0x1b : 0)); }

    explicit Host(std::mt19937_64& random) {
        uint8_t p = 1, q = 1;  // q is the inverse of p
        do {
            p = uint8_t(p ^ doubled(p));
            q ^= uint8_t(q << 1);
            q ^= uint8_t(q << 2);
            q ^= uint8_t(q << 4);
            if (q & 128) q ^= 9;
            auto turn = [&](int n) { return uint8_t(q << n | q >> (8 - n)); };
            box[p] = uint8_t(q ^ turn(1) ^ turn(2) ^ turn(3) ^ turn(4) ^ 0x63);
        } while (p != 1);
        box[0] = 0x63;
        for (int i = 0; i < 256; ++i) {
            unsigned s = box[i], d = doubled(box[i]);
            table[i] = d << 24 | s << 16 | s << 8 | (d ^ s);
        }
        uint8_t constant = 1;
        for (int i = 0; i < 44; ++i) {
            if (i < 4) {
                key[i] = unsigned(random());
                continue;
            }
            unsigned w = key[i - 1];
            if (i % 4 == 0) {
                w = w << 8 | w >> 24;
                w = unsigned(box[w >> 24]) << 24 | unsigned(box[w >> 16 & 255]) << 16 | unsigned(box[w >> 8 & 255]) << 8 | box[w & 255];
                w ^= unsigned(constant) << 24;
                constant = doubled(constant);
            }
            key[i] = key[i - 4] ^ w;
        }
    }

    // Byte by byte, as the standard describes it.
    void encrypt(unsigned word[4]) const {
        uint8_t s[16], t[16];
        auto add_key = [&](int r) {
            for (int i = 0; i < 16; ++i) s[i] ^= uint8_t(key[4 * r + i / 4] >> (24 - i % 4 * 8));
        };
        for (int i = 0; i < 16; ++i) s[i] = uint8_t(word[i / 4] >> (24 - i % 4 * 8));
        add_key(0);
        for (int r = 1; r <= 10; ++r) {
            for (int c = 0; c < 4; ++c)
                for (int row = 0; row < 4; ++row) t[4 * c + row] = box[s[4 * ((c + row) % 4) + row]];
            for (int c = 0; c < 4; ++c)
                for (int row = 0; row < 4; ++row) {
                    const uint8_t* v = t + 4 * c;
                    uint8_t a = v[row], b = v[(row + 1) % 4];
                    s[4 * c + row] = r == 10 ? a : uint8_t(doubled(a) ^ doubled(b) ^ b ^ v[(row + 2) % 4] ^ v[(row + 3) % 4]);
                }
            add_key(r);
        }
        for (int c = 0; c < 4; ++c)
            word[c] = unsigned(s[4 * c]) << 24 | unsigned(s[4 * c + 1]) << 16 | unsigned(s[4 * c + 2]) << 8 | s[4 * c + 3];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "blocks", 8388608, 1 << 27);
    int reps = repeats(args);
    unsigned long long seeded = seed(args);
    args.done();
    std::mt19937_64 random(seeded);
    Host host(random);
    uint2 nonce = make_uint2(unsigned(random()), unsigned(random()));
    uint4 *in = device_alloc<uint4>(n), *out = device_alloc<uint4>(n);
    unsigned* table = device_alloc<unsigned>(256);
    fill_uniform(reinterpret_cast<uint8_t*>(in), size_t(n) * 16, seeded, 0, 1);
    poison(out, size_t(n) * 16);
    CHECK_CUDA(cudaMemcpyToSymbol(kKey, host.key, sizeof host.key));
    CHECK_CUDA(cudaMemcpyToSymbol(kTable, host.table, sizeof host.table));
    CHECK_CUDA(cudaMemcpy(table, host.table, sizeof host.table, cudaMemcpyHostToDevice));
    auto launch = [&] {
        if (fix) aes_banked<<<792, kBlock>>>(in, out, n, nonce, table);
        else aes_constant<<<792, kBlock>>>(in, out, n, nonce);
    };
    launch_once(launch);
    auto plain = to_host(in, n), cipher = to_host(out, n);
    int wrong = 0;
    for (int i = 0; i < n; i += 61) {
        unsigned word[4] = {nonce.x, nonce.y, 0, unsigned(i)};
        host.encrypt(word);
        wrong += (cipher[i].x ^ plain[i].x) != word[0] || (cipher[i].y ^ plain[i].y) != word[1] || (cipher[i].z ^ plain[i].z) != word[2] ||
                 (cipher[i].w ^ plain[i].w) != word[3];
    }
    return report("faults/n-aes", median_us(launch, reps), 0, 32.0 * n, wrong, 0);
}
