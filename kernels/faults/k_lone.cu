// Cholesky factors of a few dense matrices, each in the shared memory of one block.
#include "h_harness.cuh"
#include "pair.cuh"

__global__ void __launch_bounds__(256) factor(const float* __restrict__ in, float* __restrict__ out, int order) {
    extern __shared__ float a[];
    int pitch = order + 1, t = threadIdx.x;
    const float* from = in + size_t(blockIdx.x) * order * order;
    float* to = out + size_t(blockIdx.x) * order * order;
    for (int i = t; i < order * order; i += 256) a[i / order * pitch + i % order] = from[i];
    __syncthreads();
    for (int p = 0; p < order; ++p) {
        float inverse = rsqrtf(a[p * pitch + p]);
        __syncthreads();
        for (int r = p + t; r < order; r += 256) a[r * pitch + p] *= inverse;
        __syncthreads();
        for (int r = p + 1 + t / 32; r < order; r += 8) {
            float mine = a[r * pitch + p];
            for (int c = p + 1 + t % 32; c <= r; c += 32) a[r * pitch + c] -= mine * a[c * pitch + p];
        }
        __syncthreads();
    }
    for (int i = t; i < order * order; i += 256) to[i] = i % order <= i / order ? a[i / order * pitch + i % order] : 0.0f;
}

// Symmetric with a dominant diagonal, from random values.
__global__ void make_definite(const float* noise, float* matrix, int order, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        size_t area = size_t(order) * order, base = i / area * area;
        int r = int(i % area / order), c = int(i % area % order);
        matrix[i] = noise[i] + noise[base + size_t(c) * order + r] + (r == c ? 2.0f * order : 0.0f);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int batch = positive(args, "batch", 24, 1 << 16), order = positive(args, "order", 160, 232);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t area = size_t(order) * order, n = area * batch, bytes = size_t(order) * (order + 1) * sizeof(float);
    float *noise = device_alloc<float>(n), *matrix = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(noise, n, key, -0.5f, 0.5f);
    make_definite<<<264, 256>>>(noise, matrix, order, n);
    CHECK_CUDA(cudaGetLastError());
    poison(out, n * sizeof(float));
    allow_smem(factor, bytes);
    auto launch = [&] { factor<<<batch, 256, bytes>>>(matrix, out, order); };
    launch_once(launch);
    std::vector<float> a = to_host(matrix, n), l = to_host(out, n);
    // L L^T against A.
    double difference = 0, norm = 0;
    for (int m = 0; m < batch; ++m)
        for (int r = 0; r < order; ++r)
            for (int c = 0; c <= r; ++c) {
                double sum = 0, want = a[m * area + size_t(r) * order + c];
                for (int k = 0; k <= c; ++k) sum += double(l[m * area + size_t(r) * order + k]) * l[m * area + size_t(c) * order + k];
                difference += (sum - want) * (sum - want);
                norm += want * want;
            }
    return report("faults/k-lone", median_us(launch, reps), batch * double(order) * order * order / 3, 0, std::sqrt(difference / norm), 1e-5);
}
