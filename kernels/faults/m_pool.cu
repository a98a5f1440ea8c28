// Mean over the tokens of each sequence of a ragged batch (bf16, 1024 wide). `long` sequences (spread over the batch) are `longest` tokens
// long, `short` are `shortest`. `fault`: a block a sequence; `fix`: a block a piece of at most 128 tokens, parts added atomically.
#include "h_harness.cuh"

constexpr int kDim = 1024, kPiece = 128;

struct Piece {
    int sequence, begin, end, length;
};

__device__ __forceinline__ void sum_tokens(const uint4* __restrict__ x, int begin, int end, float (&sum)[8]) {
#pragma unroll 8
    for (int t = begin; t < end; ++t) {
        uint4 v = x[size_t(t) * (kDim / 8) + threadIdx.x];
        const unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[2 * i] += __uint_as_float(w[i] << 16);
            sum[2 * i + 1] += __uint_as_float(w[i] & 0xffff0000u);
        }
    }
}

__global__ void __launch_bounds__(128) pool_sequences(const uint4* __restrict__ x, const int* __restrict__ start, float* __restrict__ mean) {
    float sum[8] = {};
    int begin = start[blockIdx.x], end = start[blockIdx.x + 1];
    sum_tokens(x, begin, end, sum);
    float scale = 1.0f / float(end - begin);
    for (int i = 0; i < 8; ++i) mean[size_t(blockIdx.x) * kDim + threadIdx.x * 8 + i] = sum[i] * scale;
}

__global__ void __launch_bounds__(128) pool_pieces(const uint4* __restrict__ x, const Piece* __restrict__ pieces, float* mean) {
    Piece p = pieces[blockIdx.x];
    float sum[8] = {};
    sum_tokens(x, p.begin, p.end, sum);
    float scale = 1.0f / float(p.length);
    for (int i = 0; i < 8; ++i) atomicAdd(mean + size_t(p.sequence) * kDim + threadIdx.x * 8 + i, sum[i] * scale);
}

struct Reference {
    const __nv_bfloat16* x;
    const int* start;
    __device__ double operator()(size_t i) const {
        size_t s = i / kDim;
        double sum = 0;
        for (int t = start[s]; t < start[s + 1]; ++t) sum += double(__bfloat162float(x[size_t(t) * kDim + i % kDim]));
        return sum / (start[s + 1] - start[s]);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int few = positive(args, "long", 16, 1 << 16), sequences = few + positive(args, "short", 4080, 1 << 18);
    int longest = positive(args, "longest", 16384, 1 << 20), shortest = positive(args, "shortest", 64, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    std::vector<int> start(1, 0);
    std::vector<Piece> pieces;
    for (int s = 0; s < sequences; ++s) {
        // exactly `few` of the sequences: where the scaled index moves on to its next whole number
        bool is_long = (long long)(s + 1) * few / sequences != (long long)s * few / sequences;
        int length = is_long ? longest : shortest, begin = start.back();
        for (int t = 0; t < length; t += kPiece) pieces.push_back({s, begin + t, begin + std::min(t + kPiece, length), length});
        require(begin <= (1 << 30) - length, "too many tokens");
        start.push_back(begin + length);
    }
    size_t n = size_t(start.back()) * kDim, m = size_t(sequences) * kDim;
    auto* x = device_alloc<__nv_bfloat16>(n);
    float* mean = device_alloc<float>(m);
    int* device_start = device_alloc<int>(start.size());
    Piece* device_pieces = device_alloc<Piece>(pieces.size());
    CHECK_CUDA(cudaMemcpy(device_start, start.data(), start.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_pieces, pieces.data(), pieces.size() * sizeof(Piece), cudaMemcpyHostToDevice));
    fill_uniform(x, n, key, -0.5f, 1.0f);
    poison(mean, m * sizeof(float));
    auto launch = [&] {
        if (fix) {
            CHECK_CUDA(cudaMemsetAsync(mean, 0, m * sizeof(float)));
            pool_pieces<<<unsigned(pieces.size()), 128>>>(reinterpret_cast<uint4*>(x), device_pieces, mean);
        } else {
            pool_sequences<<<sequences, 128>>>(reinterpret_cast<uint4*>(x), device_start, mean);
        }
    };
    launch_once(launch);
    double error = device_error(mean, m, Reference{x, device_start});
    return report("faults/m-pool", median_us(launch, reps), 0, 2.0 * double(n), error, 1e-4);
}
