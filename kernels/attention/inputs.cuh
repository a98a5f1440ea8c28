// What the bf16 programs of the attention ladder share on the host: inputs, the launch, the check, the result line.
#pragma once

#include "check.cuh"

struct Attention {
    AttentionShape shape;
    bool causal;
    int runs;
    unsigned long long key;
    __nv_bfloat16 *q, *k, *v, *out;

    // Reads the arguments that all have; the caller reads its own, then calls args.done() and fill().
    Attention(Args& args) : shape(args, 4096, 128) {
        long long masked = args.get("causal", 0);
        require(masked == 0 || masked == 1, "--causal must be 0 or 1");
        require(shape.s % 128 == 0, "--s must be a multiple of 128");
        causal = masked;
        runs = repeats(args);
        key = seed(args);
    }

    void fill() {
        q = device_alloc<__nv_bfloat16>(shape.elements());
        k = device_alloc<__nv_bfloat16>(shape.kv_elements());
        v = device_alloc<__nv_bfloat16>(shape.kv_elements());
        out = device_alloc<__nv_bfloat16>(shape.elements());
        fill_uniform(q, shape.elements(), key, -4, 4);
        fill_uniform(k, shape.kv_elements(), key + 1, -1, 1);
        fill_uniform(v, shape.kv_elements(), key + 2, -1, 1);
        poison(out, shape.elements() * sizeof(*out));
    }

    float scale_log2() const { return float(1.4426950408889634 / std::sqrt(double(shape.d))); }

    // One launch, the check, the timed launches; the return value is the exit code.
    template <class F>
    int run(const char* name, F launch) {
        launch();
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaDeviceSynchronize());
        double error = attention_error(q, k, v, out, shape.heads(), shape.s, shape.d, causal, false, key + 3, shape.group());
        double bytes = 4.0 * shape.elements() + 4.0 * shape.kv_elements();
        // bf16 rounding of the weights and of the output costs about 2e-3.
        return report(name, median_us(launch, runs), 4 * shape.scores(causal) * shape.d, bytes, error, 6e-3);
    }
};
