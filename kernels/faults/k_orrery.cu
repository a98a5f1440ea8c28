// Accelerations of n bodies on each other in double precision; a block takes 128 bodies and a share of the others.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kBlock = 128, kShares = 6;
constexpr double kSoft = 1e-4;

struct alignas(16) Body {
    double x, y, z, w;
};

__global__ void __launch_bounds__(kBlock) accelerate(const Body* __restrict__ body, double* __restrict__ out, int n) {
    __shared__ Body tile[kBlock];
    int i = blockIdx.x * kBlock + threadIdx.x, share = n / kShares;
    Body me = body[i];
    double ax = 0, ay = 0, az = 0;
    for (int base = blockIdx.y * share; base < int(blockIdx.y + 1) * share; base += kBlock) {
        tile[threadIdx.x] = body[base + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < kBlock; ++j) {
            Body other = tile[j];
            double dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            double inverse = rsqrt(dx * dx + dy * dy + dz * dz + kSoft);
            double f = other.w * inverse * inverse * inverse;
            ax += dx * f;
            ay += dy * f;
            az += dz * f;
        }
        __syncthreads();
    }
    atomicAdd(out + i, ax);
    atomicAdd(out + n + i, ay);
    atomicAdd(out + 2 * n + i, az);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int n = positive(args, "n", 16896, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % (kBlock * kShares) == 0, "--n must be a multiple of 768");
    double *body = device_alloc<double>(size_t(n) * 4), *out = device_alloc<double>(size_t(n) * 3);
    fill_uniform(body, size_t(n) * 4, key, 0.1f, 1.0f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(out, 0, size_t(n) * 3 * sizeof(double)));
        accelerate<<<dim3(n / kBlock, kShares), kBlock>>>(reinterpret_cast<Body*>(body), out, n);
    };
    launch_once(launch);
    std::vector<double> b = to_host(body, size_t(n) * 4);
    auto wanted = [&](size_t at) {
        size_t i = at % n, axis = at / n;
        double sum = 0;
        for (int j = 0; j < n; ++j) {
            double d[3], r2 = kSoft;
            for (int k = 0; k < 3; ++k) {
                d[k] = b[size_t(j) * 4 + k] - b[i * 4 + k];
                r2 += d[k] * d[k];
            }
            sum += b[size_t(j) * 4 + 3] * d[axis] / (r2 * std::sqrt(r2));
        }
        return sum;
    };
    double error = sampled_error(to_host(out, size_t(n) * 3), wanted, 300);
    return report("faults/k-orrery", median_us(launch, reps), 20.0 * n * double(n), 0, error, 1e-11);
}
