// A basis change C = A B in double, tiles of 64 x 64, steps of 16. Both stage their tiles alike; `fault` multiplies with DFMA, four
// by four results a thread, `fix` with the double Tensor path (16 x 8 x 4).
#include "h_harness.cuh"

constexpr int kTile = 64, kStep = 16, kPitchA = kStep + 4, kPitchB = kTile + 4, kBlock = 256;

struct Tiles {
    double a[kTile][kPitchA], b[kStep][kPitchB];
};

struct Matrices {
    const double *a, *b;
    double* c;
    int m, n, k;
};

// Fetches step `s` into registers, four values of each matrix a thread.
struct Fetched {
    double2 a[2], b[2];
    __device__ __forceinline__ void load(const Matrices& x, int s) {
        int t = threadIdx.x, row = t / 4, col = t % 4 * 4, brow = t / 16, bcol = t % 16 * 4;
        const double2* from_a = reinterpret_cast<const double2*>(x.a + size_t(blockIdx.y * kTile + row) * x.k + s * kStep + col);
        const double2* from_b = reinterpret_cast<const double2*>(x.b + size_t(s * kStep + brow) * x.n + blockIdx.x * kTile + bcol);
        a[0] = from_a[0];
        a[1] = from_a[1];
        b[0] = from_b[0];
        b[1] = from_b[1];
    }
    __device__ __forceinline__ void store(Tiles& tiles) const {
        int t = threadIdx.x, row = t / 4, col = t % 4 * 4, brow = t / 16, bcol = t % 16 * 4;
        double2* to_a = reinterpret_cast<double2*>(&tiles.a[row][col]);
        double2* to_b = reinterpret_cast<double2*>(&tiles.b[brow][bcol]);
        to_a[0] = a[0];
        to_a[1] = a[1];
        to_b[0] = b[0];
        to_b[1] = b[1];
    }
};

// Rows ty + 16 i, columns 2 tx + 32 (j / 2) + j % 2.
struct Scalar {
    double sum[4][4] = {};
    __device__ __forceinline__ void multiply(const Tiles& tiles) {
        int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
        for (int k = 0; k < kStep; ++k) {
            double a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = tiles.a[ty + 16 * i][k];
            double2 left = *reinterpret_cast<const double2*>(&tiles.b[k][2 * tx]);
            double2 right = *reinterpret_cast<const double2*>(&tiles.b[k][2 * tx + 32]);
            const double b[4] = {left.x, left.y, right.x, right.y};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fma(a[i], b[j], sum[i][j]);
        }
    }
    __device__ __forceinline__ void store(const Matrices& x) const {
        int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 2; ++j) {
                double* row = x.c + size_t(blockIdx.y * kTile + ty + 16 * i) * x.n + blockIdx.x * kTile + 2 * tx + 32 * j;
                *reinterpret_cast<double2*>(row) = make_double2(sum[i][2 * j], sum[i][2 * j + 1]);
            }
    }
};

// Eight warps, 16 x 32 results each: four products of 16 x 8 x 4.
struct Tensor {
    double sum[4][4] = {};
    __device__ __forceinline__ void multiply(const Tiles& tiles) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 16 + lane / 4, col = warp % 2 * 32 + lane / 4;
#pragma unroll
        for (int k = 0; k < kStep; k += 4) {
            double upper = tiles.a[row][k + lane % 4], lower = tiles.a[row + 8][k + lane % 4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                double b = tiles.b[k + lane % 4][col + 8 * j];
                asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                    : "+d"(sum[j][0]), "+d"(sum[j][1]), "+d"(sum[j][2]), "+d"(sum[j][3])
                    : "d"(upper), "d"(lower), "d"(b));
            }
        }
    }
    __device__ __forceinline__ void store(const Matrices& x) const {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 16 + lane / 4, col = warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                double* to = x.c + size_t(blockIdx.y * kTile + row + 8 * half) * x.n + blockIdx.x * kTile + col + 8 * j;
                *reinterpret_cast<double2*>(to) = make_double2(sum[j][2 * half], sum[j][2 * half + 1]);
            }
    }
};

// Two tiles: the next one is fetched while this one is multiplied.
template <class Product>
__device__ __forceinline__ void product(const Matrices& x) {
    __shared__ __align__(16) Tiles tiles[2];
    Product result;
    Fetched next;
    int steps = x.k / kStep;
    next.load(x, 0);
    next.store(tiles[0]);
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        if (s + 1 < steps) next.load(x, s + 1);
        result.multiply(tiles[s % 2]);
        if (s + 1 < steps) next.store(tiles[(s + 1) % 2]);
        __syncthreads();
    }
    result.store(x);
}

__global__ void __launch_bounds__(kBlock, 2) orbital_dfma(Matrices x) { product<Scalar>(x); }
__global__ void __launch_bounds__(kBlock, 2) orbital_dmma(Matrices x) { product<Tensor>(x); }

__global__ void reference_product(Matrices x, double* c) {
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    double sum = 0;
    for (int k = 0; k < x.k; ++k) sum += x.a[size_t(row) * x.k + k] * x.b[size_t(k) * x.n + col];
    c[size_t(row) * x.n + col] = sum;
}

struct Reference {
    const double* c;
    __device__ double operator()(size_t i) const { return c[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int m = positive(args, "m", 2112, 1 << 15), n = positive(args, "n", 3072, 1 << 15), k = positive(args, "k", 2048, 1 << 15);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(m % kTile == 0 && n % kTile == 0 && k % kStep == 0, "--m and --n must be multiples of 64, --k of 16");
    double *a = device_alloc<double>(size_t(m) * k), *b = device_alloc<double>(size_t(k) * n), *c = device_alloc<double>(size_t(m) * n);
    double* ref = device_alloc<double>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, key, -1.0f, 1.0f);
    fill_uniform(b, size_t(k) * n, key + 1, -1.0f, 1.0f);
    poison(c, size_t(m) * n * sizeof(double));
    Matrices x{a, b, c, m, n, k};
    dim3 grid(n / kTile, m / kTile);
    auto launch = [&] {
        if (fix) orbital_dmma<<<grid, kBlock>>>(x);
        else orbital_dfma<<<grid, kBlock>>>(x);
    };
    launch_once(launch);
    reference_product<<<dim3(n / 32, m / 8), dim3(32, 8)>>>(x, ref);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(c, size_t(m) * n, Reference{ref});
    return report("faults/n-orbital", median_us(launch, reps), 2.0 * m * n * k, 0, error, 1e-12);
}
