// Income tax of every row of a register: brackets, a surtax in one region of four, and the total. Memory is the limit in both.
// `fault` looks worse (a table in constant memory that each lane indexes, a branch for a quarter of the lanes, a double sum a row),
// `fix` adds up the brackets without a table, computes the surtax for all and sums in float; nothing is gained.
#include "h_harness.cuh"

constexpr int kBrackets = 16;
constexpr float kWidth = 32768.0f;

struct Row {
    float income, deduction, credit;
    int region;
};

// The rate rises by `more` at the start of each bracket.
struct Law {
    float more[kBrackets];
    float2 bracket[kBrackets];  // the tax at its start, its rate
    float surtax;
};

__device__ __forceinline__ float over(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double over(double a, double b) { return a / b; }

template <class T>
__device__ __forceinline__ T surtax(T taxable, T rate) {
    T rest = taxable - T(50000);
    rest = rest > T(0) ? rest : T(0);
    return rate * rest * (T(1) - over(T(20000), rest + T(40000)));
}

__device__ __forceinline__ Row row_at(const int4* __restrict__ rows, int i) {
    int4 v = rows[i];
    return {__int_as_float(v.x), __int_as_float(v.y), __int_as_float(v.z), v.w};
}

__device__ __forceinline__ void add_total(double sum, double* total) {
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) atomicAdd(total + blockIdx.x % 256, sum);
}

__global__ void __launch_bounds__(256) tax_indexed(const int4* __restrict__ rows, float* __restrict__ tax, int n,
                                                   const __grid_constant__ Law law, double* total) {
    double sum = 0;
#pragma unroll 2
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        Row row = row_at(rows, i);
        float taxable = fmaxf(row.income - row.deduction, 0.0f);
        int b = min(int(taxable * (1.0f / kWidth)), kBrackets - 1);
        float2 bracket = law.bracket[b];
        float due = bracket.x + bracket.y * (taxable - float(b) * kWidth);
        if (row.region == 3) due += surtax(taxable, law.surtax);
        due = fmaxf(due - row.credit, 0.0f);
        tax[i] = due;
        sum += double(due);
    }
    add_total(sum, total);
}

__global__ void __launch_bounds__(256) tax_selected(const int4* __restrict__ rows, float* __restrict__ tax, int n,
                                                    const __grid_constant__ Law law, double* total) {
    float sum = 0;
#pragma unroll 2
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        Row row = row_at(rows, i);
        float taxable = fmaxf(row.income - row.deduction, 0.0f), due = 0;
#pragma unroll
        for (int b = 0; b < kBrackets; ++b) due += law.more[b] * fmaxf(taxable - float(b) * kWidth, 0.0f);
        due += (row.region == 3 ? 1.0f : 0.0f) * surtax(taxable, law.surtax);
        due = fmaxf(due - row.credit, 0.0f);
        tax[i] = due;
        sum += due;
    }
    add_total(double(sum), total);
}

__global__ void make_rows(int4* rows, int n, unsigned long long key) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long a = diagnose_hash(key + 2ull * i), b = diagnose_hash(key + 2ull * i + 1);
        float income = float(unsigned(a)) * 0x1p-32f * 120000.0f, deduction = float(unsigned(a >> 32)) * 0x1p-32f * 20000.0f;
        rows[i] = make_int4(__float_as_int(income), __float_as_int(deduction), __float_as_int(float(unsigned(b)) * 0x1p-32f * 500.0f),
                            int(b >> 62));
    }
}

struct Reference {
    const int4* rows;
    Law law;
    __device__ double operator()(size_t i) const {
        Row row = row_at(rows, int(i));
        double taxable = fmax(double(row.income) - double(row.deduction), 0.0), due = 0;
        for (int b = 0; b < kBrackets; ++b) due += double(law.more[b]) * fmax(taxable - b * double(kWidth), 0.0);
        if (row.region == 3) due += surtax(taxable, double(law.surtax));
        return fmax(due - double(row.credit), 0.0);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "rows", 50331648, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int4* rows = device_alloc<int4>(n);
    float* tax = device_alloc<float>(n);
    double* total = device_alloc<double>(256);
    make_rows<<<2112, 256>>>(rows, n, key);
    CHECK_CUDA(cudaGetLastError());
    poison(tax, size_t(n) * sizeof(float));
    Law law{{0.125f}, {make_float2(0, 0.125f)}, 0.03125f};
    for (int b = 1; b < kBrackets; ++b) {
        law.more[b] = 0.03125f;
        law.bracket[b] = make_float2(law.bracket[b - 1].x + law.bracket[b - 1].y * kWidth, law.bracket[b - 1].y + law.more[b]);
    }
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(total, 0, 256 * sizeof(double)));
        if (fix) tax_selected<<<2112, 256>>>(rows, tax, n, law, total);
        else tax_indexed<<<2112, 256>>>(rows, tax, n, law, total);
    };
    launch_once(launch);
    double error = device_error(tax, n, Reference{rows, law}), sum = 0, all = 0;
    for (double t : to_host(total, 256)) sum += t;
    for (float t : to_host(tax, n)) all += t;
    double off = std::fabs(sum - all) / all;
    error = off <= error ? error : off;
    return report("faults/n-brackets", median_us(launch, reps), 0, 20.0 * n, error, 1e-4);
}
