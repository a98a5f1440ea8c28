// FP32 attention in three passes through HBM: scores, softmax, values. --pass names the one that is timed.
// diagnose: expect global-reload (scores, values), hbm-bandwidth (softmax)
#include "check.cuh"

// K is stored [d][s], so that neighbouring lanes read neighbouring keys: the reloads are then the only fault.
__global__ void attention_naive_scores(const float* __restrict__ q, const float* __restrict__ k,
                                       float* __restrict__ scores, int s, int d, float scale) {
    int key = blockIdx.x * blockDim.x + threadIdx.x;
    int query = blockIdx.y * blockDim.y + threadIdx.y;
    if (key >= s || query >= s) return;
    const float* q_row = q + (size_t(blockIdx.z) * s + query) * d;
    const float* k_head = k + size_t(blockIdx.z) * s * d;
    float sum = 0;
    for (int i = 0; i < d; ++i) sum += q_row[i] * k_head[size_t(i) * s + key];
    scores[(size_t(blockIdx.z) * s + query) * s + key] = sum * scale;
}

// One warp a row, which it keeps in registers: one read and one write of HBM, no barrier.
template <int Vectors>
__global__ void __launch_bounds__(256) attention_naive_softmax(float* scores, size_t rows) {
    size_t row = size_t(blockIdx.x) * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    float4* data = reinterpret_cast<float4*>(scores) + row * (Vectors * 32) + threadIdx.x % 32;
    float4 v[Vectors];
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = data[i * 32];
#pragma unroll
    for (int i = 0; i < Vectors; ++i)
        largest = fmaxf(largest, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    for (int offset = 16; offset > 0; offset /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
        v[i] = make_float4(__expf(v[i].x - largest), __expf(v[i].y - largest), __expf(v[i].z - largest),
                           __expf(v[i].w - largest));
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    float inverse = 1.f / sum;
#pragma unroll
    for (int i = 0; i < Vectors; ++i)
        data[i * 32] = make_float4(v[i].x * inverse, v[i].y * inverse, v[i].z * inverse, v[i].w * inverse);
}

__global__ void attention_naive_values(const float* __restrict__ weights, const float* __restrict__ v,
                                       float* __restrict__ out, int s, int d) {
    int column = threadIdx.x;
    int query = blockIdx.x * blockDim.y + threadIdx.y;
    if (query >= s) return;
    const float* row = weights + (size_t(blockIdx.y) * s + query) * s;
    const float* v_head = v + size_t(blockIdx.y) * s * d;
    float sum = 0;
    for (int j = 0; j < s; ++j) sum += row[j] * v_head[size_t(j) * d + column];
    out[(size_t(blockIdx.y) * s + query) * d + column] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    AttentionShape shape(args, 2048, 64);
    std::string pass = args.get_str("pass", "scores");
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    int heads = shape.heads(), s = shape.s, d = shape.d;
    require(pass == "scores" || pass == "softmax" || pass == "values", "--pass must be scores, softmax or values");
    require(shape.group() == 1, "--kv_heads must be --h here");
    require(s == 1024 || s == 2048 || s == 4096, "--s must be 1024, 2048 or 4096");

    size_t n = shape.elements(), rows = size_t(heads) * s;
    float* q = device_alloc<float>(n);
    float* k = device_alloc<float>(n);
    float* v = device_alloc<float>(n);
    float* out = device_alloc<float>(n);
    float* scores = device_alloc<float>(rows * s);
    fill_uniform(q, n, key, -4, 4);
    fill_uniform(k, n, key + 1, -1, 1);
    fill_uniform(v, n, key + 2, -1, 1);
    poison(out, n * sizeof(float));
    poison(scores, rows * s * sizeof(float));

    auto run_scores = [&] {
        dim3 block(32, 8), grid(s / 32, s / 8, heads);
        attention_naive_scores<<<grid, block>>>(q, k, scores, s, d, 1.f / std::sqrt(float(d)));
    };
    auto run_softmax = [&] {
        unsigned blocks = unsigned((rows + 7) / 8);
        if (s == 1024) attention_naive_softmax<8><<<blocks, 256>>>(scores, rows);
        if (s == 2048) attention_naive_softmax<16><<<blocks, 256>>>(scores, rows);
        if (s == 4096) attention_naive_softmax<32><<<blocks, 256>>>(scores, rows);
    };
    auto run_values = [&] {
        dim3 block(d, 256 / d), grid((s + 256 / d - 1) / (256 / d), heads);
        attention_naive_values<<<grid, block>>>(scores, v, out, s, d);
    };
    run_scores();
    CHECK_CUDA(cudaGetLastError());
    run_softmax();
    CHECK_CUDA(cudaGetLastError());
    run_values();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = attention_error(q, k, v, out, heads, s, d, false, true, key + 3);

    auto launch = [&] {
        if (pass == "scores") run_scores();
        if (pass == "softmax") run_softmax();  // in place: repeats work on weights, for the same time
        if (pass == "values") run_values();
    };
    double flops = pass == "softmax" ? 0 : 2 * shape.scores() * d;
    std::string name = "attention/naive-" + pass;
    return report(name.c_str(), median_us(launch, runs), flops, 8 * shape.scores(), error, 2e-5);
}
