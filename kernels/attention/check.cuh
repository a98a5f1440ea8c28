// The reference of the attention ladder: out = softmax(Q K^T / sqrt(d)) V; tensors are [batch * head][s][d].
#pragma once

#include "../common.cuh"

// Sampled query rows in double precision on the host. `key_major_d`: K is stored [d][s] instead.
template <class In, class Out>
double attention_error(const In* q, const In* k, const In* v, const Out* out, int heads, int s, int d, bool causal,
                       bool key_major_d, unsigned long long seed) {
    constexpr int kSamples = 64;
    std::mt19937_64 random(seed);
    size_t head_size = size_t(s) * d, offset = 0;
    std::vector<float> sampled;
    std::vector<double> ref, weight(s);
    std::vector<In> host_k, host_v;
    for (int sample = 0; sample < kSamples; ++sample) {
        // Eight samples share a head: copying K and V takes longer than the arithmetic.
        if (sample % 8 == 0) {
            offset = size_t(random() % heads) * head_size;
            host_k = to_host(k + offset, head_size);
            host_v = to_host(v + offset, head_size);
        }
        int row = int(random() % s);
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
    int b, h, s, d;
    AttentionShape(Args& args, int s_def, int d_def) {
        long long sizes[] = {args.get("b", 2), args.get("h", 16), args.get("s", s_def), args.get("d", d_def)};
        require(sizes[0] > 0 && sizes[1] > 0 && sizes[0] <= 65535 && sizes[1] <= 65535 && sizes[0] * sizes[1] <= 65535,
                "--b times --h must be between 1 and 65535");
        require(sizes[2] > 0 && sizes[2] <= 1 << 20, "--s must be between 1 and 2^20");
        require(sizes[3] == 64 || sizes[3] == 128, "--d must be 64 or 128");
        b = int(sizes[0]), h = int(sizes[1]), s = int(sizes[2]), d = int(sizes[3]);
    }
    int heads() const { return b * h; }
    size_t elements() const { return size_t(heads()) * s * d; }
    double scores() const { return double(heads()) * s * s; }
};
