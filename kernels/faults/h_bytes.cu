// Copies bytes between places of different alignment.
#include "h_harness.cuh"

__global__ void copy_bytes(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

// 16-byte stores; the words loaded are shifted into place. Reads up to 3 bytes before and after the source's words.
__global__ void copy_bytes_wide(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, int n) {
    int head = min(int((16 - (reinterpret_cast<uintptr_t>(out) & 15)) & 15), n);
    int vectors = (n - head) / 16, tail = head + vectors * 16;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < head) out[i] = in[i];
    if (i < n - tail) out[tail + i] = in[tail + i];
    if (i >= vectors) return;
    uintptr_t from = reinterpret_cast<uintptr_t>(in + head) + size_t(i) * 16;
    const unsigned* word = reinterpret_cast<const unsigned*>(from & ~uintptr_t(3));
    unsigned shift = unsigned(from & 3) * 8;
    unsigned w[5];
#pragma unroll
    for (int k = 0; k < 5; ++k) w[k] = word[k];
    uint4 v = make_uint4(__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
                         __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift));
    *reinterpret_cast<uint4*>(out + head + size_t(i) * 16) = v;
}

struct Reference {
    const uint8_t* in;
    __device__ double operator()(size_t i) const { return in[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "n", 140000000), from = int(args.get("from", 7)), to = int(args.get("to", 3));
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(from >= 0 && from < 64 && to >= 0 && to < 64, "--from and --to must be between 0 and 63");
    uint8_t *in = device_alloc<uint8_t>(size_t(n) + 128), *out = device_alloc<uint8_t>(size_t(n) + 128);
    fill_uniform(in, size_t(n) + 128, key, 0.0f, 256.0f);
    // No value of a byte is a poison; a byte that is never written is found unless the input has a zero there.
    CHECK_CUDA(cudaMemset(out, 0, size_t(n) + 128));
    auto launch = [&] {
        if (fix) copy_bytes_wide<<<blocks_for(size_t(n) / 16 + 16, 256), 256>>>(in + from, out + to, n);
        else copy_bytes<<<blocks_for(n, 256), 256>>>(in + from, out + to, n);
    };
    launch_once(launch);
    double error = device_error(out + to, n, Reference{in + from});
    double us = median_us(launch, reps);
    return report("faults/h-bytes", us, 0, 2.0 * n, error, 0);
}
