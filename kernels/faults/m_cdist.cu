// Pairwise L1 distances: c[i][j] = sum over d of |a[d][i] - b[d][j]|, features first. --form: single (one distance a thread, tiles
// of 32 x 32), register (8 x 8 distances a thread), crowded (the same, squeezed for four blocks a multiprocessor).
#include "h_harness.cuh"

__global__ void __launch_bounds__(1024) cdist_single(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                                     int m, int n, int dim) {
    __shared__ float sa[32][32], sb[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (int d = 0; d < dim; d += 32) {
        sa[y][x] = a[size_t(d + y) * m + blockIdx.y * 32 + x];
        sb[y][x] = b[size_t(d + y) * n + blockIdx.x * 32 + x];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 32; ++i) sum += fabsf(sa[i][y] - sb[i][x]);
        __syncthreads();
    }
    c[size_t(blockIdx.y * 32 + y) * n + blockIdx.x * 32 + x] = sum;
}

constexpr int kStep = 16;

template <int BLOCKS>
__global__ void __launch_bounds__(256, BLOCKS) cdist_register(const float* __restrict__ a, const float* __restrict__ b,
                                                              float* __restrict__ c, int m, int n, int dim) {
    __shared__ float4 sa[kStep][32], sb[kStep][32];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, lx = threadIdx.x % 32, ly = threadIdx.x / 32;
    float sum[8][8] = {};
    const float* ga = a + size_t(blockIdx.y) * 128 + lx * 4;
    const float* gb = b + size_t(blockIdx.x) * 128 + lx * 4;
    for (int d = 0; d < dim; d += kStep) {
#pragma unroll
        for (int i = 0; i < kStep; i += 8) {
            sa[i + ly][lx] = *reinterpret_cast<const float4*>(ga + size_t(d + i + ly) * m);
            sb[i + ly][lx] = *reinterpret_cast<const float4*>(gb + size_t(d + i + ly) * n);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kStep; ++i) {
            float4 a0 = sa[i][ty], a1 = sa[i][16 + ty], b0 = sb[i][tx], b1 = sb[i][16 + tx];
            const float u[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            const float v[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int r = 0; r < 8; ++r)
#pragma unroll
                for (int s = 0; s < 8; ++s) sum[r][s] += fabsf(u[r] - v[s]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        size_t row = size_t(blockIdx.y) * 128 + r / 4 * 64 + ty * 4 + r % 4;
        float* to = c + row * n + size_t(blockIdx.x) * 128 + tx * 4;
        *reinterpret_cast<float4*>(to) = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        *reinterpret_cast<float4*>(to + 64) = make_float4(sum[r][4], sum[r][5], sum[r][6], sum[r][7]);
    }
}

constexpr int kChecked = 65536;

struct Reference {
    const float *a, *b;
    int m, n, dim;
    unsigned long long key;
    __host__ __device__ size_t where(size_t i) const { return diagnose_hash(key + i) % (size_t(m) * n); }
    __device__ double operator()(size_t i) const {
        size_t at = where(i), row = at / n, column = at % n;
        double sum = 0;
        for (int d = 0; d < dim; ++d) sum += fabs(double(a[size_t(d) * m + row]) - double(b[size_t(d) * n + column]));
        return sum;
    }
};

__global__ void take(const float* c, float* out, Reference ref) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kChecked) out[i] = c[ref.where(i)];
}

__global__ void count_bad(const float* c, size_t n, int dim, int* bad) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        if (!(c[i] > 0.4f * float(dim) && c[i] < float(dim))) atomicAdd(bad, 1);  // the mean is 2/3 of dim
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string form = args.get_str("form", "register");
    require(form == "single" || form == "register" || form == "crowded", "--form must be single, register or crowded, got " + form);
    int m = positive(args, "m", 4096, 32768), n = positive(args, "n", 4224, 32768), dim = positive(args, "dim", 512, 65536);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % 128 == 0 && n % 128 == 0 && dim % 256 == 0, "m and n must be multiples of 128, dim of 256");
    auto *a = device_alloc<float>(size_t(m) * dim), *b = device_alloc<float>(size_t(n) * dim);
    float *c = device_alloc<float>(size_t(m) * n), *sample = device_alloc<float>(kChecked);
    fill_uniform(a, size_t(m) * dim, key, -1.0f, 1.0f);
    fill_uniform(b, size_t(n) * dim, key + 1, -1.0f, 1.0f);
    poison(c, size_t(m) * n * sizeof(float));
    auto launch = [&] {
        if (form == "single") cdist_single<<<dim3(n / 32, m / 32), dim3(32, 32)>>>(a, b, c, m, n, dim);
        else if (form == "register") cdist_register<2><<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, dim);
        else cdist_register<4><<<dim3(n / 128, m / 128), 256>>>(a, b, c, m, n, dim);
    };
    launch_once(launch);
    int* bad = device_alloc<int>(1);
    CHECK_CUDA(cudaMemset(bad, 0, sizeof(int)));
    launch_once([&] { count_bad<<<1056, 256>>>(c, size_t(m) * n, dim, bad); });
    require(to_host(bad, 1)[0] == 0, "distances out of range");
    Reference ref{a, b, m, n, dim, diagnose_hash(key + 2)};
    launch_once([&] { take<<<kChecked / 256, 256>>>(c, sample, ref); });
    double error = device_error(sample, kChecked, ref);
    return report("faults/m-cdist", median_us(launch, reps), 2.0 * m * n * dim, 0, error, 1e-5);
}
