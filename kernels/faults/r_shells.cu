// Screening of Gaussian shell pairs: the Frobenius norm of a pair's block of one-electron integrals (angular momenta 1 to 3 on either
// side, six operators), primitives, a pair a lane. Tables of the one-dimensional integrals by Obara and Saika's recurrence. Each of the
// 54 classes has code of its own, unrolled to the last component; a warp has 32 pairs of one class at a time.
// `fault` has the tasks as the molecule brings them, `fix` sorted by class, the longest first; the kernel is the same.
#include "h_harness.cuh"

constexpr int kBlock = 128, kOperators = 6, kClasses = 9 * kOperators;
enum Operator { kOverlap, kKinetic, kDipole, kSecondA, kGradient, kSecondB };

__host__ __device__ constexpr int more_left(int op) { return op == kSecondA ? 2 : 0; }
__host__ __device__ constexpr int more_right(int op) {
    return op == kKinetic || op == kSecondB ? 2 : op == kDipole || op == kGradient ? 1 : 0;
}

// One axis: plain[i][j] are the overlaps, changed[i][j] those with the operator between the two functions.
template <int kLeft, int kRight, int kOp>
struct Axis {
    float plain[kLeft + 1][kRight + 1], changed[kLeft + 1][kRight + 1];

    // `d` is the place of the right centre seen from the left one, `a` and `b` the exponents.
    __device__ __forceinline__ Axis(float d, float a, float b, float half) {
        constexpr int kI = kLeft + more_left(kOp), kJ = kRight + more_right(kOp);
        float s[kI + 1][kJ + 1], pa = 2 * b * half * d, pb = pa - d;
        s[0][0] = 1;
#pragma unroll
        for (int i = 1; i <= kI; ++i) s[i][0] = pa * s[i - 1][0] + (i > 1 ? (i - 1) * half * s[i > 1 ? i - 2 : 0][0] : 0.0f);
#pragma unroll
        for (int j = 1; j <= kJ; ++j)
#pragma unroll
            for (int i = 0; i <= kI; ++i) {
                float v = pb * s[i][j - 1];
                if (i > 0) v += i * half * s[i > 0 ? i - 1 : 0][j - 1];
                if (j > 1) v += (j - 1) * half * s[i][j > 1 ? j - 2 : 0];
                s[i][j] = v;
            }
#pragma unroll
        for (int i = 0; i <= kLeft; ++i)
#pragma unroll
            for (int j = 0; j <= kRight; ++j) {
                plain[i][j] = s[i][j];
                float lower = j > 0 ? j * s[i][j > 0 ? j - 1 : 0] : 0.0f;
                if (kOp == kKinetic)
                    changed[i][j] = b * (2 * j + 1) * s[i][j] - 2 * b * b * s[i][j + more_right(kOp)] -
                                    (j > 1 ? 0.5f * (j * (j - 1)) * s[i][j > 1 ? j - 2 : 0] : 0.0f);
                else if (kOp == kDipole) changed[i][j] = s[i][j + more_right(kOp)] + d * s[i][j];
                else if (kOp == kSecondA) changed[i][j] = s[i + more_left(kOp)][j];
                else if (kOp == kGradient) changed[i][j] = lower - 2 * b * s[i][j + more_right(kOp)];
                else if (kOp == kSecondB) changed[i][j] = s[i][j + more_right(kOp)];
                else changed[i][j] = s[i][j];
            }
    }
};

// The sum of squares over all components; scalar operators add the three axes, vector operators have three components.
template <int kClass>
__device__ __forceinline__ float block_squares(float a, float b, float dx, float dy, float dz, float half) {
    constexpr int kOp = kClass % kOperators, kRight = kClass / kOperators % 3 + 1, kLeft = kClass / kOperators / 3 + 1;
    Axis<kLeft, kRight, kOp> x(dx, a, b, half), y(dy, a, b, half), z(dz, a, b, half);
    float sum = 0;
#pragma unroll
    for (int ix = 0; ix <= kLeft; ++ix)
#pragma unroll
        for (int jx = 0; jx <= kRight; ++jx)
#pragma unroll
            for (int iy = 0; iy <= kLeft; ++iy)
#pragma unroll
                for (int jy = 0; jy <= kRight; ++jy) {
                    if (ix + iy > kLeft || jx + jy > kRight) continue;
                    const int iz = kLeft - ix - iy, jz = kRight - jx - jy;
                    float sx = x.plain[ix][jx], sy = y.plain[iy][jy], sz = z.plain[iz][jz], xy = sx * sy;
                    if (kOp == kOverlap) {
                        sum += xy * sz * (xy * sz);
                        continue;
                    }
                    float ox = x.changed[ix][jx] * sy * sz, oy = sx * y.changed[iy][jy] * sz, oz = xy * z.changed[iz][jz];
                    if (kOp == kDipole || kOp == kGradient) sum += ox * ox + oy * oy + oz * oz;
                    else sum += (ox + oy + oz) * (ox + oy + oz);
                }
    return sum;
}

#define CLASS(c) case c: sum = block_squares<c>(a, b, dx, dy, dz, half); break;
#define SIX(c) CLASS(c) CLASS(c + 1) CLASS(c + 2) CLASS(c + 3) CLASS(c + 4) CLASS(c + 5)

struct Pair {
    float a, b, dx, dy, dz;
    int kind;
};

// Persistent warps; the next task's pair is on its way while this one's is worked on.
__global__ void __launch_bounds__(kBlock, 4) shell_norms(const float* __restrict__ pairs, const unsigned char* __restrict__ kind,
                                                         float* __restrict__ out, int tasks) {
    const size_t n = size_t(tasks) * 32;
    const int lane = threadIdx.x % 32, warps = gridDim.x * (kBlock / 32);
    auto fetch = [&](int task) {
        const float* from = pairs + size_t(task) * 32 + lane;
        return Pair{from[0], from[n], from[2 * n], from[3 * n], from[4 * n], kind[task]};
    };
    int task = (blockIdx.x * kBlock + threadIdx.x) / 32;
    if (task >= tasks) return;
    Pair coming = fetch(task);
    for (; task < tasks; task += warps) {
        const Pair now = coming;
        coming = fetch(min(task + warps, tasks - 1));
        const float a = now.a, b = now.b, dx = now.dx, dy = now.dy, dz = now.dz, p = a + b, half = __fdividef(0.5f, p);
        const float over = 6.2831853f * half, overlap = over * expf(-2 * a * b * half * (dx * dx + dy * dy + dz * dz));
        float sum = 0;
        switch (__shfl_sync(0xffffffffu, now.kind, 0)) {
            SIX(0) SIX(6) SIX(12) SIX(18) SIX(24) SIX(30) SIX(36) SIX(42) SIX(48)
            default: break;
        }
        out[size_t(task) * 32 + lane] = overlap * sqrtf(over * sum);
    }
}

// The same in double, from binomial sums of Gaussian moments instead of the recurrence.
double moment(int i, int j, double pa, double pb, double p) {
    double sum = 0;
    for (int u = 0; u <= i; ++u)
        for (int v = 0; v <= j; ++v) {
            if ((u + v) % 2) continue;
            auto choose = [](int n, int k) { double r = 1; for (int q = 1; q <= k; ++q) r = r * (n - k + q) / q; return r; };
            double odd = 1;
            for (int q = u + v - 1; q > 1; q -= 2) odd *= q;
            sum += choose(i, u) * choose(j, v) * std::pow(pa, i - u) * std::pow(pb, j - v) * odd / std::pow(2 * p, (u + v) / 2);
        }
    return sum;
}

double reference_norm(int c, double a, double b, const double (&d)[3]) {
    int op = c % kOperators, right = c / kOperators % 3 + 1, left = c / kOperators / 3 + 1;
    double p = a + b, plain[3][4][4], changed[3][4][4], r2 = 0, sum = 0;
    for (int k = 0; k < 3; ++k) {
        r2 += d[k] * d[k];
        double pa = b / p * d[k], pb = pa - d[k];
        for (int i = 0; i <= left; ++i)
            for (int j = 0; j <= right; ++j) {
                auto s = [&](int u, int v) { return u < 0 || v < 0 ? 0.0 : moment(u, v, pa, pb, p); };
                plain[k][i][j] = s(i, j);
                double& to = changed[k][i][j];
                if (op == kKinetic) to = b * (2 * j + 1) * s(i, j) - 2 * b * b * s(i, j + 2) - 0.5 * j * (j - 1) * s(i, j - 2);
                else if (op == kDipole) to = s(i, j + 1) + d[k] * s(i, j);
                else if (op == kSecondA) to = s(i + 2, j);
                else if (op == kGradient) to = j * s(i, j - 1) - 2 * b * s(i, j + 1);
                else to = op == kSecondB ? s(i, j + 2) : s(i, j);
            }
    }
    for (int ix = 0; ix <= left; ++ix)
        for (int iy = 0; ix + iy <= left; ++iy)
            for (int jx = 0; jx <= right; ++jx)
                for (int jy = 0; jx + jy <= right; ++jy) {
                    int i[3] = {ix, iy, left - ix - iy}, j[3] = {jx, jy, right - jx - jy};
                    double o[3];
                    for (int k = 0; k < 3; ++k) {
                        o[k] = 1;
                        for (int q = 0; q < 3; ++q) o[k] *= q == k ? changed[q][i[q]][j[q]] : plain[q][i[q]][j[q]];
                    }
                    if (op == kOverlap) sum += o[0] * o[0];
                    else if (op == kDipole || op == kGradient) sum += o[0] * o[0] + o[1] * o[1] + o[2] * o[2];
                    else sum += (o[0] + o[1] + o[2]) * (o[0] + o[1] + o[2]);
                }
    const double pi = 3.14159265358979323846;
    return std::pow(pi / p, 1.5) * std::exp(-a * b / p * r2) * std::sqrt(sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int tasks = positive(args, "tasks", 270336, 1 << 20), blocks = positive(args, "blocks", 528, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(tasks) * 32;
    float *pairs = device_alloc<float>(5 * n), *out = device_alloc<float>(n);
    unsigned char* kind = device_alloc<unsigned char>(tasks);
    fill_uniform(pairs, 2 * n, key, 0.3f, 1.5f);
    fill_uniform(pairs + 2 * n, 3 * n, key + 1, -1.2f, 1.2f);
    std::mt19937_64 rng(key);
    std::vector<unsigned char> kinds(tasks);
    for (auto& k : kinds) k = (unsigned char)(rng() % kClasses);
    auto work = [](int k) { return k / kOperators % 3 + k / kOperators / 3; };
    if (fix) std::sort(kinds.begin(), kinds.end(), [&](int l, int r) { return work(l) != work(r) ? work(l) > work(r) : l > r; });
    CHECK_CUDA(cudaMemcpy(kind, kinds.data(), tasks, cudaMemcpyHostToDevice));
    poison(out, n * sizeof(float));
    auto launch = [&] { shell_norms<<<blocks, kBlock>>>(pairs, kind, out, tasks); };
    launch_once(launch);
    std::vector<float> in = to_host(pairs, 5 * n), all = to_host(out, n), got;
    std::vector<double> wanted;
    require(std::all_of(all.begin(), all.end(), [](float v) { return std::isfinite(v); }), "a norm is not finite");
    for (size_t i = 0; i < n; i += std::max<size_t>(1, n / 3000) | 1) {
        double d[3] = {in[2 * n + i], in[3 * n + i], in[4 * n + i]};
        got.push_back(all[i]);
        wanted.push_back(reference_norm(kinds[i / 32], in[i], in[n + i], d));
    }
    return report("faults/r-shells", median_us(launch, reps), 0, 24.0 * double(n), relative_error(got, wanted), 1e-4);
}
