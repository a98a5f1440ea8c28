// One step of lattice Boltzmann (D2Q9, BGK, periodic): pull from the neighbours, collide.
// `fault` keeps the nine populations of a cell together, `fix` keeps nine planes.
#include "h_harness.cuh"

constexpr int kBlock = 256;
constexpr float kOmega = 1.2f;
__constant__ int kCx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
__constant__ int kCy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

template <bool PLANES>
__device__ size_t place(size_t cell, int q, size_t cells) {
    return PLANES ? q * cells + cell : cell * 9 + q;
}

template <bool PLANES>
__global__ void __launch_bounds__(kBlock) collide(const float* __restrict__ in, float* __restrict__ out, int nx, int ny) {
    constexpr int cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, cy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    int x = blockIdx.x * kBlock + threadIdx.x, y = blockIdx.y;
    size_t cells = size_t(nx) * ny;
    int xs[3] = {x == 0 ? nx - 1 : x - 1, x, x == nx - 1 ? 0 : x + 1};
    int ys[3] = {y == 0 ? ny - 1 : y - 1, y, y == ny - 1 ? 0 : y + 1};
    float f[9], rho = 0, ux = 0, uy = 0;
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        f[q] = in[place<PLANES>(size_t(ys[1 - cy[q]]) * nx + xs[1 - cx[q]], q, cells)];
        rho += f[q];
        ux += cx[q] * f[q];
        uy += cy[q] * f[q];
    }
    float inverse = __fdividef(1.0f, rho);
    ux *= inverse;
    uy *= inverse;
    float common = 1.0f - 1.5f * (ux * ux + uy * uy);
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        float weight = q == 0 ? 4.0f / 9 : q < 5 ? 1.0f / 9 : 1.0f / 36;
        float cu = 3.0f * (cx[q] * ux + cy[q] * uy);
        float rest = weight * rho * (common + cu + 0.5f * cu * cu);
        out[place<PLANES>(size_t(y) * nx + x, q, cells)] = f[q] + kOmega * (rest - f[q]);
    }
}

// In double, one population a thread, by the layout's formula.
__global__ void reference_collide(const float* in, double* out, int nx, int ny, bool planes) {
    size_t cells = size_t(nx) * ny;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < 9 * cells; i += size_t(gridDim.x) * blockDim.x) {
        int q = int(i / cells), x = int(i % cells % nx), y = int(i % cells / nx);
        double rho = 0, ux = 0, uy = 0, mine = 0;
        for (int p = 0; p < 9; ++p) {
            size_t from = size_t((y - kCy[p] + ny) % ny) * nx + (x - kCx[p] + nx) % nx;
            double v = in[planes ? p * cells + from : from * 9 + p];
            rho += v;
            ux += kCx[p] * v;
            uy += kCy[p] * v;
            if (p == q) mine = v;
        }
        ux /= rho;
        uy /= rho;
        double weight = q == 0 ? 4.0 / 9 : q < 5 ? 1.0 / 9 : 1.0 / 36, cu = kCx[q] * ux + kCy[q] * uy;
        double rest = weight * rho * (1 + 3 * cu + 4.5 * cu * cu - 1.5 * (ux * ux + uy * uy));
        size_t cell = size_t(y) * nx + x;
        out[planes ? q * cells + cell : cell * 9 + q] = mine + double(kOmega) * (rest - mine);
    }
}

struct Wanted {
    const double* values;
    __device__ double operator()(size_t i) const { return values[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int nx = positive(args, "nx", 4096, 1 << 16), ny = positive(args, "ny", 2048, 1 << 15);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(nx % kBlock == 0, "--nx must be a multiple of 256");
    size_t n = size_t(nx) * ny * 9;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    double* ref = device_alloc<double>(n);
    fill_uniform(in, n, key, 0.05f, 0.15f);
    poison(out, n * sizeof(float));
    dim3 grid(nx / kBlock, ny);
    auto kernel = fix ? collide<true> : collide<false>;
    auto launch = [&] { kernel<<<grid, kBlock>>>(in, out, nx, ny); };
    launch_once(launch);
    reference_collide<<<4224, 256>>>(in, ref, nx, ny, fix);
    CHECK_CUDA(cudaGetLastError());
    double error = device_error(out, n, Wanted{ref});
    return report("faults/k-drift", median_us(launch, reps), 0, 8.0 * n, error, 1e-5);
}
