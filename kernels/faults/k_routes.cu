// One min-plus product c = a (x) b of n x n integer distances, the inner step of a blocked all-pairs shortest path.
// --variant plain | tile | panel.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kFar = 1 << 29;

__global__ void __launch_bounds__(256) relax(const int* __restrict__ a, const int* __restrict__ b, int* __restrict__ c, int n) {
    int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
    int best = kFar;
    for (int k = 0; k < n; ++k) best = min(best, a[size_t(i) * n + k] + b[size_t(k) * n + j]);
    c[size_t(i) * n + j] = best;
}

__global__ void __launch_bounds__(1024) relax_tile(const int* __restrict__ a, const int* __restrict__ b, int* __restrict__ c, int n) {
    __shared__ int sa[32][32], sb[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, j = blockIdx.x * 32 + tx, i = blockIdx.y * 32 + ty;
    int best = kFar;
    for (int k = 0; k < n; k += 32) {
        sa[ty][tx] = a[size_t(i) * n + k + tx];
        sb[ty][tx] = b[size_t(k + ty) * n + j];
        __syncthreads();
#pragma unroll
        for (int s = 0; s < 32; ++s) best = min(best, sa[ty][s] + sb[s][tx]);
        __syncthreads();
    }
    c[size_t(i) * n + j] = best;
}

// 128 x 128 a block, 8 x 8 a thread, steps of 8; the next step's values wait in registers.
__global__ void __launch_bounds__(256, 2) relax_panel(const int* __restrict__ a, const int* __restrict__ b, int* __restrict__ c, int n) {
    __shared__ int4 sa[2][8][33], sb[2][8][32];  // [step][k][row or column / 4]
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int i0 = blockIdx.y * 128, j0 = blockIdx.x * 128;
    int ar = t / 2, ak = t % 2 * 4, bk = t / 32, bj = t % 32;
    const int4* from_a = reinterpret_cast<const int4*>(a + size_t(i0 + ar) * n + ak);
    const int4* from_b = reinterpret_cast<const int4*>(b + size_t(bk) * n + j0) + bj;
    int best[8][8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) best[i][j] = kFar;
    auto put = [&](int stage, int4 va, int4 vb) {
        int* column = reinterpret_cast<int*>(&sa[stage][ak][0]) + ar;
        column[0] = va.x;
        column[132] = va.y;
        column[264] = va.z;
        column[396] = va.w;
        sb[stage][bk][bj] = vb;
    };
    put(0, from_a[0], from_b[0]);
    __syncthreads();
    int steps = n / 8;
    for (int s = 0; s < steps; ++s) {
        int4 va = make_int4(0, 0, 0, 0), vb = va;
        if (s + 1 < steps) {
            va = from_a[(s + 1) * 2];
            vb = from_b[size_t(s + 1) * 2 * n];
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            int4 a0 = sa[s & 1][k][ty], a1 = sa[s & 1][k][16 + ty], b0 = sb[s & 1][k][tx], b1 = sb[s & 1][k][16 + tx];
            int rows[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            int columns[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) best[i][j] = __viaddmin_s32(rows[i], columns[j], best[i][j]);
        }
        if (s + 1 < steps) put((s + 1) & 1, va, vb);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int4* to = reinterpret_cast<int4*>(c + size_t(i0 + i / 4 * 64 + ty * 4 + i % 4) * n + j0);
        to[tx] = make_int4(best[i][0], best[i][1], best[i][2], best[i][3]);
        to[16 + tx] = make_int4(best[i][4], best[i][5], best[i][6], best[i][7]);
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string variant = args.get_str("variant", "plain");
    require(variant == "plain" || variant == "tile" || variant == "panel", "--variant must be plain, tile or panel, got " + variant);
    int n = positive(args, "n", 2048, 16384);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 128 == 0, "--n must be a multiple of 128");
    size_t cells = size_t(n) * n;
    int *a = device_alloc<int>(cells), *b = device_alloc<int>(cells), *c = device_alloc<int>(cells);
    fill_uniform(a, cells, key, 0.0f, 1000000.0f);
    fill_uniform(b, cells, key + 1, 0.0f, 1000000.0f);
    poison(c, cells * sizeof(int));
    auto launch = [&] {
        if (variant == "plain") relax<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(a, b, c, n);
        else if (variant == "tile") relax_tile<<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a, b, c, n);
        else relax_panel<<<dim3(n / 128, n / 128), 256>>>(a, b, c, n);
    };
    launch_once(launch);
    std::vector<int> ha = to_host(a, cells), hb = to_host(b, cells);
    auto wanted = [&](size_t at) {
        size_t i = at / n, j = at % n;
        int best = kFar;
        for (int k = 0; k < n; ++k) best = std::min(best, ha[i * n + k] + hb[size_t(k) * n + j]);
        return best;
    };
    double error = sampled_error(to_host(c, cells), wanted);
    return report("faults/k-routes", median_us(launch, reps), 2.0 * cells * n, 0, error, 0);
}
