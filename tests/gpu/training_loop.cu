// A program like a training loop, for tests/gpu/collection.py: --steps times the same 50 launches of 30 kernels, most of which are instances
// of four templates, as in PyTorch: their function name and launch configuration are the same, only their template argument differs.
// Every kernel is checked once against the host, on fresh random inputs. With --ranges 1, every step but the first is an NVTX range "later"
// between cudaProfilerStart and cudaProfilerStop.
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "../../kernels/common.cuh"

// --- one value in, one out, a pair in: the host computes the same functors

struct Add { static __host__ __device__ float of(float x, float y) { return x + y; } };
struct Multiply { static __host__ __device__ float of(float x, float y) { return x * y; } };
struct Scale { static __host__ __device__ float of(float x, float) { return 0.5f * x; } };
struct Relu { static __host__ __device__ float of(float x, float) { return x > 0 ? x : 0; } };
struct ReluBackward { static __host__ __device__ float of(float x, float y) { return x > 0 ? y : 0; } };
struct Gelu { static __host__ __device__ float of(float x, float) { return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); } };
struct Sigmoid { static __host__ __device__ float of(float x, float) { return 1 / (1 + expf(-x)); } };
struct Silu { static __host__ __device__ float of(float x, float) { return x / (1 + expf(-x)); } };
struct Logarithm { static __host__ __device__ float of(float x, float) { return logf(x * x + 1); } };
struct Power { static __host__ __device__ float of(float x, float y) { return powf(fabsf(x) + 0.5f, y); } };
struct Divide { static __host__ __device__ float of(float x, float y) { return x / (y * y + 1); } };
struct Momentum { static __host__ __device__ float of(float x, float y) { return 0.9f * x + 0.1f * y; } };
struct Decay { static __host__ __device__ float of(float x, float y) { return x - 0.01f * y; } };
struct Clamp { static __host__ __device__ float of(float x, float) { return fminf(fmaxf(x, -0.5f), 0.5f); } };

template <class Op>
__global__ void map(const float* x, const float* y, float* out, size_t n) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = Op::of(x[i], y[i]);
}

// --- one block a row

struct Sum { static __host__ __device__ float join(float a, float b) { return a + b; } static __host__ __device__ float of(float x) { return x; } };
struct Squares { static __host__ __device__ float join(float a, float b) { return a + b; } static __host__ __device__ float of(float x) { return x * x; } };
struct Absolute { static __host__ __device__ float join(float a, float b) { return a + b; } static __host__ __device__ float of(float x) { return fabsf(x); } };
struct Largest { static __host__ __device__ float join(float a, float b) { return fmaxf(a, b); } static __host__ __device__ float of(float x) { return x; } };
struct Smallest { static __host__ __device__ float join(float a, float b) { return fminf(a, b); } static __host__ __device__ float of(float x) { return x; } };

template <class Op>
__global__ void reduce_rows(const float* x, float* out, int columns) {
    __shared__ float part[256];
    const float* row = x + size_t(blockIdx.x) * columns;
    float value = Op::of(row[threadIdx.x]);
    for (int i = threadIdx.x + 256; i < columns; i += 256) value = Op::join(value, Op::of(row[i]));
    part[threadIdx.x] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] = Op::join(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// --- matrix products out of tiles in shared memory; A, B or both transposed

constexpr int kTile = 32;

template <bool TransposeA, bool TransposeB>
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float left[kTile][kTile + 1], right[kTile][kTile + 1];
    int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += kTile) {
        left[threadIdx.y][threadIdx.x] = TransposeA ? a[size_t(k + threadIdx.x) * n + row] : a[size_t(row) * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = TransposeB ? b[size_t(column) * n + k + threadIdx.y] : b[size_t(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < kTile; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[size_t(row) * n + column] = sum;
}

// --- the rest of a step

template <bool Shifted>
__global__ void transpose(const float* x, float* out, int n) {
    int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    out[size_t(column) * n + row] = x[size_t(row) * n + column] + (Shifted ? 1.0f : 0.0f);
}

__global__ void gather(const float* x, const int* index, float* out, size_t n) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = x[index[i]];
}

__global__ void scatter_add(const float* x, const int* index, float* out, size_t n) {
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(out + index[i] % 1024, x[i]);
}

__global__ void softmax_rows(const float* x, float* out, int columns) {
    const float* row = x + size_t(blockIdx.x) * columns;
    __shared__ float part[256];
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += 256) largest = fmaxf(largest, row[i]);
    part[threadIdx.x] = largest;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    largest = part[0];
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 256) sum += expf(row[i] - largest);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < columns; i += 256) out[size_t(blockIdx.x) * columns + i] = expf(row[i] - largest) / part[0];
}

__global__ void bias(const float* x, const float* row, float* out, int columns) {
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[size_t(blockIdx.x) * columns + i] = x[size_t(blockIdx.x) * columns + i] + row[i];
}

// --- the program

struct Data {
    int n = 0;        // matrices are n x n
    size_t size = 0;  // n * n
    size_t much = 0;  // elements of the long vectors
    float *x = nullptr, *y = nullptr, *out = nullptr, *sums = nullptr;
    int* index = nullptr;
};

struct Step {
    const char* name;
    int times;  // launches a step
    void (*launch)(const Data&);
    double (*expected)(const std::vector<float>& x, const std::vector<float>& y, const std::vector<int>& index, const Data&, size_t at);
    size_t (*count)(const Data&);  // elements of the result, or 0 for the vector `sums`
};

template <class Op>
Step mapped(const char* name, int times) {
    return {name, times, [](const Data& d) { map<Op><<<1056, 256>>>(d.x, d.y, d.out, d.much); },
            [](const std::vector<float>& x, const std::vector<float>& y, const std::vector<int>&, const Data&, size_t at) { return double(Op::of(x[at], y[at])); },
            [](const Data& d) { return d.much; }};
}

template <class Op>
Step reduced(const char* name, int times) {
    return {name, times, [](const Data& d) { reduce_rows<Op><<<unsigned(d.much / d.n), 256>>>(d.x, d.sums, d.n); },
            [](const std::vector<float>& x, const std::vector<float>&, const std::vector<int>&, const Data& d, size_t at) {
                float value = Op::of(x[at * d.n]);
                for (int i = 1; i < d.n; ++i) value = Op::join(value, Op::of(x[at * d.n + i]));
                return double(value);
            },
            [](const Data&) { return size_t(0); }};
}

template <bool TransposeA, bool TransposeB>
Step multiplied(const char* name, int times) {
    return {name, times, [](const Data& d) { matmul<TransposeA, TransposeB><<<dim3(d.n / kTile, d.n / kTile), dim3(kTile, kTile)>>>(d.x, d.y, d.out, d.n); },
            [](const std::vector<float>& x, const std::vector<float>& y, const std::vector<int>&, const Data& d, size_t at) {
                size_t row = at / d.n, column = at % d.n, n = size_t(d.n);
                double sum = 0;
                for (size_t k = 0; k < n; ++k) sum += double(TransposeA ? x[k * n + row] : x[row * n + k]) * double(TransposeB ? y[column * n + k] : y[k * n + column]);
                return sum;
            },
            [](const Data& d) { return d.size; }};
}

template <bool Shifted>
Step transposed(const char* name, int times) {
    return {name, times, [](const Data& d) { transpose<Shifted><<<dim3(d.n / kTile, d.n / kTile), dim3(kTile, kTile)>>>(d.x, d.out, d.n); },
            [](const std::vector<float>& x, const std::vector<float>&, const std::vector<int>&, const Data& d, size_t at) {
                return double(x[(at % d.n) * d.n + at / d.n]) + (Shifted ? 1 : 0);
            },
            [](const Data& d) { return d.size; }};
}

const Step kSteps[] = {
    multiplied<false, false>("matmul nn", 3), multiplied<true, false>("matmul tn", 2), multiplied<false, true>("matmul nt", 2), multiplied<true, true>("matmul tt", 1),
    mapped<Add>("add", 3), mapped<Multiply>("multiply", 3), mapped<Scale>("scale", 2), mapped<Relu>("relu", 2), mapped<ReluBackward>("relu backward", 2),
    mapped<Gelu>("gelu", 2), mapped<Sigmoid>("sigmoid", 1), mapped<Silu>("silu", 2), mapped<Logarithm>("log", 1), mapped<Power>("pow", 1),
    mapped<Divide>("divide", 1), mapped<Momentum>("momentum", 2), mapped<Decay>("decay", 2), mapped<Clamp>("clamp", 1),
    reduced<Sum>("sum", 2), reduced<Squares>("squares", 2), reduced<Absolute>("absolute", 1), reduced<Largest>("largest", 2), reduced<Smallest>("smallest", 1),
    transposed<false>("transpose", 2), transposed<true>("transpose shifted", 1),
    {"gather", 1, [](const Data& d) { gather<<<1056, 256>>>(d.x, d.index, d.out, d.size); },
     [](const std::vector<float>& x, const std::vector<float>&, const std::vector<int>& index, const Data&, size_t at) { return double(x[index[at]]); },
     [](const Data& d) { return d.size; }},
    {"scatter", 1, [](const Data& d) { scatter_add<<<1056, 256>>>(d.x, d.index, d.sums, d.size / 16); },
     [](const std::vector<float>& x, const std::vector<float>&, const std::vector<int>& index, const Data& d, size_t at) {
         double sum = 0;
         for (size_t i = 0; i < d.size / 16; ++i) sum += size_t(index[i] % 1024) == at ? double(x[i]) : 0;
         return sum;
     },
     [](const Data&) { return size_t(0); }},
    {"softmax", 2, [](const Data& d) { softmax_rows<<<d.n, 256>>>(d.x, d.out, d.n); },
     [](const std::vector<float>& x, const std::vector<float>&, const std::vector<int>&, const Data& d, size_t at) {
         size_t row = at / d.n * d.n;
         double sum = 0;
         for (int i = 0; i < d.n; ++i) sum += std::exp(double(x[row + i]));
         return std::exp(double(x[at])) / sum;
     },
     [](const Data& d) { return d.size; }},
    {"bias", 1, [](const Data& d) { bias<<<d.n, 256>>>(d.x, d.y, d.out, d.n); },
     [](const std::vector<float>& x, const std::vector<float>& y, const std::vector<int>&, const Data& d, size_t at) { return double(x[at]) + double(y[at % d.n]); },
     [](const Data& d) { return d.size; }},
    {"clear", 1, [](const Data& d) { map<Clamp><<<132, 256>>>(d.x, d.y, d.out, d.size); },  // the same kernel in another launch configuration
     [](const std::vector<float>& x, const std::vector<float>& y, const std::vector<int>&, const Data&, size_t at) { return double(Clamp::of(x[at], y[at])); },
     [](const Data& d) { return d.size; }},
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    Data d;
    int steps = int(args.get("steps", 40));
    bool check = args.get("check", 0) != 0, ranges = args.get("ranges", 0) != 0;
    d.n = int(args.get("n", 3072));
    d.much = size_t(args.get("much", 96)) << 20;
    auto key = seed(args);
    args.done();
    require(d.n % 256 == 0 && d.n >= 1024, "--n must be a multiple of 256 from 1024 on");
    d.size = size_t(d.n) * d.n;
    d.much = std::max(d.size, d.much / d.n * d.n);
    d.x = device_alloc<float>(d.much), d.y = device_alloc<float>(d.much), d.out = device_alloc<float>(d.much);
    d.sums = device_alloc<float>(std::max<size_t>(d.much / d.n, 1024));
    d.index = device_alloc<int>(d.size);
    fill_uniform(d.x, d.much, key, -1.0f, 1.0f);
    fill_uniform(d.y, d.much, key + 1, -1.0f, 1.0f);
    fill_uniform(d.index, d.size, key + 2, 0.0f, float(d.size));
    int wrong = 0;
    if (check) {
        auto x = to_host(d.x, d.much), y = to_host(d.y, d.much);
        auto index = to_host(d.index, d.size);
        std::mt19937_64 random(key);
        for (const Step& step : kSteps) {
            CHECK_CUDA(cudaMemset(d.sums, 0, d.much / d.n * sizeof(float)));
            poison(d.out, d.much * sizeof(float));
            step.launch(d);
            CHECK_CUDA(cudaGetLastError());
            CHECK_CUDA(cudaDeviceSynchronize());
            size_t count = step.count(d);
            auto found = count ? to_host(d.out, count) : to_host(d.sums, 1024);
            double worst = 0;
            for (int i = 0; i < 8; ++i) {
                size_t at = random() % found.size();
                double wanted = step.expected(x, y, index, d, at);
                double apart = std::fabs(double(found[at]) - wanted) / (1 + std::fabs(wanted));
                worst = apart <= worst ? worst : apart;  // a NaN becomes the worst and stays it
            }
            bool ok = worst < 2e-3;  // single-precision sums of 3,072 terms in another order
            wrong += !ok;
            std::printf("%-18s error %.1e %s\n", step.name, worst, ok ? "ok" : "mismatch");
        }
    }
    int launches = 0;
    for (int step = 0; step < steps; ++step) {
        if (ranges && step == 1) {
            CHECK_CUDA(cudaProfilerStart());
            nvtxRangePushA("later");
        }
        for (const Step& one : kSteps) {
            for (int i = 0; i < one.times; ++i, ++launches) one.launch(d);
        }
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    if (ranges && steps > 1) {
        nvtxRangePop();
        CHECK_CUDA(cudaProfilerStop());
    }
    std::printf("%d launches of %zu kernels in %d steps\n", launches, std::size(kSteps), steps);
    return wrong ? 1 : 0;
}
