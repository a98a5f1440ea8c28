// Spectral elements of 8 x 8 x 8 points: the sum of the derivatives along the three axes by a matrix of 8 x 8.
// `fault` reads both factors of every product from shared memory, `fix` keeps rows of the matrix and a column of points in registers.
#include "h_harness.cuh"

constexpr int kP = 8, kPoints = kP * kP * kP;

__constant__ float kMatrix[kP * kP];  // for the direction whose row is the same in all lanes

// A block of 512 an element, a thread a point; the matrix is turned, so that nothing conflicts.
__global__ void __launch_bounds__(kPoints) derivative_shared(const float* __restrict__ u, const float* __restrict__ matrix,
                                                             float* __restrict__ out, int elements) {
    __shared__ float d[kP * kP], v[kPoints];
    int t = threadIdx.x, i = t % kP, j = t / kP % kP, k = t / (kP * kP);
    if (t < kP * kP) d[t % kP * kP + t / kP] = matrix[t];
    for (int e = blockIdx.x; e < elements; e += gridDim.x) {
        v[t] = u[size_t(e) * kPoints + t];
        __syncthreads();
        float sum = 0;
#pragma unroll
        for (int a = 0; a < kP; ++a) {
            sum += d[a * kP + i] * v[(k * kP + j) * kP + a];
            sum += d[a * kP + j] * v[(k * kP + a) * kP + i];
            sum += d[a * kP + k] * v[(a * kP + j) * kP + i];
        }
        __syncthreads();
        out[size_t(e) * kPoints + t] = sum;
    }
}

// Four elements a block of 256, a thread a column of eight points along k.
__global__ void __launch_bounds__(256) derivative_columns(const float* __restrict__ u, const float* __restrict__ matrix,
                                                          float* __restrict__ out, int elements) {
    __shared__ float d[kP * kP];
    __shared__ __align__(16) float layers[4][kPoints];
    int t = threadIdx.x % 64, i = t % kP, j = t / kP;
    float(&v)[kPoints] = layers[threadIdx.x / 64];
    if (threadIdx.x < kP * kP) d[threadIdx.x] = matrix[threadIdx.x];
    __syncthreads();
    float di[kP], dj[kP];
#pragma unroll
    for (int a = 0; a < kP; ++a) {
        di[a] = d[i * kP + a];
        dj[a] = d[j * kP + a];
    }
    for (int base = blockIdx.x * 4; base < elements; base += gridDim.x * 4) {
        int e = base + threadIdx.x / 64;
        bool valid = e < elements;
        float column[kP], sum[kP];
#pragma unroll
        for (int k = 0; k < kP; ++k) {
            column[k] = valid ? u[size_t(e) * kPoints + k * 64 + t] : 0.0f;
            v[k * 64 + t] = column[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kP; ++k) {
            sum[k] = 0;
            const float4* row = reinterpret_cast<const float4*>(v + k * 64 + j * kP);
            float4 left = row[0], right = row[1];
            const float x[kP] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
            for (int a = 0; a < kP; ++a) {
                sum[k] += di[a] * x[a];
                sum[k] += dj[a] * v[k * 64 + a * kP + i];
                sum[k] += kMatrix[k * kP + a] * column[a];
            }
        }
        __syncthreads();
        if (valid)
#pragma unroll
            for (int k = 0; k < kP; ++k) out[size_t(e) * kPoints + k * 64 + t] = sum[k];
    }
}

struct Reference {
    const float *u, *d;
    __device__ double operator()(size_t n) const {
        size_t e = n / kPoints;
        int i = n % kP, j = n / kP % kP, k = n / (kP * kP) % kP;
        const float* v = u + e * kPoints;
        double sum = 0;
        for (int a = 0; a < kP; ++a)
            sum += double(d[i * kP + a]) * v[(k * kP + j) * kP + a] + double(d[j * kP + a]) * v[(k * kP + a) * kP + i] +
                   double(d[k * kP + a]) * v[(a * kP + j) * kP + i];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int elements = positive(args, "elements", 131072, 1 << 21);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(elements) * kPoints;
    float *u = device_alloc<float>(n), *out = device_alloc<float>(n), *matrix = device_alloc<float>(kP * kP);
    fill_uniform(u, n, key, 0.0f, 1.0f);
    fill_uniform(matrix, kP * kP, key + 1, -0.5f, 1.0f);
    poison(out, n * sizeof(float));
    CHECK_CUDA(cudaMemcpyToSymbol(kMatrix, matrix, kP * kP * sizeof(float), 0, cudaMemcpyDeviceToDevice));
    auto launch = [&] {
        if (fix) derivative_columns<<<1056, 256>>>(u, matrix, out, elements);
        else derivative_shared<<<528, kPoints>>>(u, matrix, out, elements);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{u, matrix});
    return report("faults/n-sumfac", median_us(launch, reps), 48.0 * double(n), 0, error, 1e-4);
}
