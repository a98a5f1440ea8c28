// The reference of the attention ladder: out = softmax(Q K^T / sqrt(d)) V; tensors are [batch * head][s][d].
#pragma once

#include "../common.cuh"

template <class Out>
__global__ void count_not_finite(const Out* out, size_t n, unsigned* count) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        if (!isfinite(float(out[i]))) atomicAdd(count, 1u);
}

// Every output written (the poison is NaN), and sampled query rows in double precision on the host. `key_major_d`: K is
// stored [d][s] instead. `group` heads of Q share one of K and V. `queries` rows of Q a head, s if 0.
template <class In, class Out>
double attention_error(const In* q, const In* k, const In* v, const Out* out, int heads, int s, int d, bool causal,
                       bool key_major_d, unsigned long long seed, int group = 1, int queries = 0) {
    constexpr int kSamples = 64;
    if (queries == 0) queries = s;
    auto* bad = device_alloc<unsigned>(1);
    CHECK_CUDA(cudaMemset(bad, 0, sizeof(unsigned)));
    count_not_finite<<<1024, 256>>>(out, size_t(heads) * queries * d, bad);
    CHECK_CUDA(cudaGetLastError());
    if (to_host(bad, 1)[0]) return NAN;
    CHECK_CUDA(cudaFree(bad));
    std::mt19937_64 random(seed);
    size_t keys_size = size_t(s) * d, offset = 0;
    std::vector<float> sampled;
    std::vector<double> ref, weight(s);
    std::vector<In> host_k, host_v;
    for (int sample = 0; sample < kSamples; ++sample) {
        // Eight samples share a head where it has that many: copying K and V takes longer than the arithmetic.
        if (sample % std::min(8, queries) == 0) {
            size_t head = size_t(random() % heads);
            offset = head * queries * d;
            host_k = to_host(k + head / group * keys_size, keys_size);
            host_v = to_host(v + head / group * keys_size, keys_size);
        }
        int row = int(random() % queries);
        auto query = to_host(q + offset + size_t(row) * d, d);
        for (Out value : to_host(out + offset + size_t(row) * d, d)) sampled.push_back(float(value));
        int keys = causal ? row + 1 : s;
        double largest = -INFINITY, sum = 0;
        for (int j = 0; j < keys; ++j) {
            double score = 0;
            for (int i = 0; i < d; ++i)
                score += double(float(query[i])) *
                         double(float(host_k[key_major_d ? size_t(i) * s + j : size_t(j) * d + i]));
            weight[j] = score / std::sqrt(double(d));
            largest = std::max(largest, weight[j]);
        }
        std::vector<double> result(d, 0.0);
        for (int j = 0; j < keys; ++j) {
            double p = std::exp(weight[j] - largest);
            sum += p;
            for (int i = 0; i < d; ++i) result[i] += p * double(float(host_v[size_t(j) * d + i]));
        }
        for (double value : result) ref.push_back(value / sum);
    }
    return relative_error(sampled, ref);
}

struct AttentionShape {
    int b, h, kv_heads, s, d;
    AttentionShape(Args& args, int s_def, int d_def) {
        long long sizes[] = {args.get("b", 2), args.get("h", 16), args.get("s", s_def), args.get("d", d_def)};
        require(sizes[0] > 0 && sizes[1] > 0 && sizes[0] <= 65535 && sizes[1] <= 65535 && sizes[0] * sizes[1] <= 65535,
                "--b times --h must be between 1 and 65535");
        require(sizes[2] > 0 && sizes[2] <= 1 << 20, "--s must be between 1 and 2^20");
        require(sizes[3] == 64 || sizes[3] == 128, "--d must be 64 or 128");
        b = int(sizes[0]), h = int(sizes[1]), s = int(sizes[2]), d = int(sizes[3]);
        long long shared = args.get("kv_heads", h);
        require(shared > 0 && shared <= h && h % shared == 0, "--kv_heads must divide --h");
        kv_heads = int(shared);
    }
    int heads() const { return b * h; }
    int group() const { return h / kv_heads; }  // heads of Q that share one of K and V
    size_t elements() const { return size_t(heads()) * s * d; }
    size_t kv_elements() const { return elements() / group(); }
    double scores() const { return double(heads()) * s * s; }
    double scores(bool causal) const { return causal ? heads() * (double(s) * (s + 1) / 2) : scores(); }
};
