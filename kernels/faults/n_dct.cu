// Denoises a picture: 8 x 8 cosine transform, soft threshold of all but the mean, inverse transform. Eight lanes share a tile and
// turn it in shared memory; `fault` has rows of 8 words, `fix` of 9.
#include "h_harness.cuh"

constexpr int kBlock = 256;

template <class T>
struct Cosine {
    static constexpr T c1 = T(0.49039264020161522), c2 = T(0.46193976625564337), c3 = T(0.41573480615127262),
                       c4 = T(0.35355339059327379), c5 = T(0.27778511650980114), c6 = T(0.19134171618254492), c7 = T(0.097545161008064124);
    static __device__ __forceinline__ void forward(T x[8]) {
        T s0 = x[0] + x[7], s1 = x[1] + x[6], s2 = x[2] + x[5], s3 = x[3] + x[4];
        T d0 = x[0] - x[7], d1 = x[1] - x[6], d2 = x[2] - x[5], d3 = x[3] - x[4];
        x[0] = c4 * ((s0 + s3) + (s1 + s2));
        x[4] = c4 * ((s0 + s3) - (s1 + s2));
        x[2] = c2 * (s0 - s3) + c6 * (s1 - s2);
        x[6] = c6 * (s0 - s3) - c2 * (s1 - s2);
        x[1] = c1 * d0 + c3 * d1 + c5 * d2 + c7 * d3;
        x[3] = c3 * d0 - c7 * d1 - c1 * d2 - c5 * d3;
        x[5] = c5 * d0 - c1 * d1 + c7 * d2 + c3 * d3;
        x[7] = c7 * d0 - c5 * d1 + c3 * d2 - c1 * d3;
    }
    static __device__ __forceinline__ void inverse(T x[8]) {
        T a = c4 * (x[0] + x[4]), b = c4 * (x[0] - x[4]), p = c2 * x[2] + c6 * x[6], q = c6 * x[2] - c2 * x[6];
        T e[4] = {a + p, b + q, b - q, a - p};
        T o[4] = {c1 * x[1] + c3 * x[3] + c5 * x[5] + c7 * x[7], c3 * x[1] - c7 * x[3] - c1 * x[5] - c5 * x[7],
                  c5 * x[1] - c1 * x[3] + c7 * x[5] + c3 * x[7], c7 * x[1] - c5 * x[3] + c3 * x[5] - c1 * x[7]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = e[i] + o[i];
            x[7 - i] = e[i] - o[i];
        }
    }
    static __device__ __forceinline__ T shrink(T x, T limit) {
        T size = (x < 0 ? -x : x) - limit;
        return size > 0 ? (x < 0 ? -size : size) : T(0);
    }
};

template <int kPitch>
__device__ __forceinline__ void denoise_strip(const float* __restrict__ in, float* __restrict__ out, int width, float limit) {
    using Dct = Cosine<float>;
    __shared__ float tile[kBlock * kPitch];
    int x = blockIdx.x * kBlock + threadIdx.x, part = threadIdx.x % 8;
    size_t corner = size_t(blockIdx.y) * 8 * width + x;
    float* mine = tile + threadIdx.x / 8 * 8 * kPitch;
    float v[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) v[r] = in[corner + size_t(r) * width];
    Dct::forward(v);
#pragma unroll
    for (int r = 0; r < 8; ++r) mine[r * kPitch + part] = v[r];
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 8; ++c) v[c] = mine[part * kPitch + c];
    Dct::forward(v);
#pragma unroll
    for (int c = 0; c < 8; ++c) v[c] = c == 0 && part == 0 ? v[c] : Dct::shrink(v[c], limit);
    Dct::inverse(v);
#pragma unroll
    for (int c = 0; c < 8; ++c) mine[part * kPitch + c] = v[c];
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 8; ++r) v[r] = mine[r * kPitch + part];
    Dct::inverse(v);
#pragma unroll
    for (int r = 0; r < 8; ++r) out[corner + size_t(r) * width] = v[r];
}

__global__ void __launch_bounds__(kBlock) denoise_dense(const float* __restrict__ in, float* __restrict__ out, int width, float limit) {
    denoise_strip<8>(in, out, width, limit);
}

__global__ void __launch_bounds__(kBlock) denoise_padded(const float* __restrict__ in, float* __restrict__ out, int width, float limit) {
    denoise_strip<9>(in, out, width, limit);
}

// A thread a tile, in double.
__global__ void reference_dct(const float* in, double* out, int width, int height, double limit) {
    using Dct = Cosine<double>;
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 8, y = blockIdx.y * 8;
    if (x >= width || y >= height) return;
    double t[8][8], v[8];
    for (int c = 0; c < 8; ++c) {
        for (int r = 0; r < 8; ++r) v[r] = in[size_t(y + r) * width + x + c];
        Dct::forward(v);
        for (int r = 0; r < 8; ++r) t[r][c] = v[r];
    }
    for (int r = 0; r < 8; ++r) {
        Dct::forward(t[r]);
        for (int c = 0; c < 8; ++c)
            if (r || c) t[r][c] = Dct::shrink(t[r][c], limit);
        Dct::inverse(t[r]);
    }
    for (int c = 0; c < 8; ++c) {
        for (int r = 0; r < 8; ++r) v[r] = t[r][c];
        Dct::inverse(v);
        for (int r = 0; r < 8; ++r) out[size_t(y + r) * width + x + c] = v[r];
    }
}

struct Reference {
    const double* out;
    __device__ double operator()(size_t i) const { return out[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int width = positive(args, "width", 12288, 1 << 16), height = positive(args, "height", 8192, 1 << 16);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % kBlock == 0 && height % 8 == 0, "--width must be a multiple of 256, --height of 8");
    size_t n = size_t(width) * height;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(in, n, key, 0.0f, 255.0f);
    poison(out, n * sizeof(float));
    dim3 grid(width / kBlock, height / 8);
    const float limit = 40.0f;
    auto launch = [&] {
        if (fix) denoise_padded<<<grid, kBlock>>>(in, out, width, limit);
        else denoise_dense<<<grid, kBlock>>>(in, out, width, limit);
    };
    launch_once(launch);
    reference_dct<<<dim3(blocks_for(width / 8, 64), height / 8), 64>>>(in, ref, width, height, limit);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(out, n, Reference{ref});
    return report("faults/n-dct", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
