// A pricing summary: six groups by a byte, four sums and a count of the rows up to a date. `fault` adds every row to the result,
// `fix` keeps sums of its own in each thread. Both test the date, which nearly all rows pass.
#include "h_harness.cuh"

constexpr int kGroups = 6, kSums = 4;

struct Columns {
    const float4 *quantity, *price, *discount, *tax;
    const int4* date;
    const uchar4* group;
};

struct Row {
    float quantity, price, discount, tax;
    int date, group;
};

__device__ __forceinline__ void load_rows(const Columns& c, size_t q, Row row[4]) {
    float4 quantity = c.quantity[q], price = c.price[q], discount = c.discount[q], tax = c.tax[q];
    int4 date = c.date[q];
    uchar4 group = c.group[q];
    row[0] = {quantity.x, price.x, discount.x, tax.x, date.x, group.x};
    row[1] = {quantity.y, price.y, discount.y, tax.y, date.y, group.y};
    row[2] = {quantity.z, price.z, discount.z, tax.z, date.z, group.z};
    row[3] = {quantity.w, price.w, discount.w, tax.w, date.w, group.w};
}

__host__ __device__ inline void terms(const Row& row, double term[kSums]) {
    float reduced = row.price * (1.0f - row.discount);
    term[0] = row.quantity;
    term[1] = row.price;
    term[2] = reduced;
    term[3] = reduced * (1.0f + row.tax);
}

__global__ void __launch_bounds__(256) summary_direct(Columns columns, size_t quads, int last_date, double* sums, int* counts) {
    for (size_t q = size_t(blockIdx.x) * 256 + threadIdx.x; q < quads; q += size_t(gridDim.x) * 256) {
        Row row[4];
        load_rows(columns, q, row);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            if (row[r].date > last_date) continue;
            double term[kSums];
            terms(row[r], term);
#pragma unroll
            for (int s = 0; s < kSums; ++s) atomicAdd(sums + row[r].group * kSums + s, term[s]);
            atomicAdd(counts + row[r].group, 1);
        }
    }
}

__global__ void __launch_bounds__(256) summary_private(Columns columns, size_t quads, int last_date, double* sums, int* counts) {
    __shared__ double block_sum[kGroups * kSums];
    __shared__ int block_count[kGroups];
    if (threadIdx.x < kGroups * kSums) block_sum[threadIdx.x] = 0;
    if (threadIdx.x < kGroups) block_count[threadIdx.x] = 0;
    __syncthreads();
    double sum[kGroups][kSums] = {};
    int count[kGroups] = {};
    for (size_t q = size_t(blockIdx.x) * 256 + threadIdx.x; q < quads; q += size_t(gridDim.x) * 256) {
        Row row[4];
        load_rows(columns, q, row);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            double term[kSums];
            terms(row[r], term);
            bool keep = row[r].date <= last_date;
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                if (keep && row[r].group == g) {
                    for (int s = 0; s < kSums; ++s) sum[g][s] += term[s];
                    ++count[g];
                }
            }
        }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
            for (int m = 16; m; m >>= 1) sum[g][s] += __shfl_xor_sync(0xffffffffu, sum[g][s], m);
            if (threadIdx.x % 32 == 0) atomicAdd(block_sum + g * kSums + s, sum[g][s]);
        }
        count[g] = __reduce_add_sync(0xffffffffu, count[g]);
        if (threadIdx.x % 32 == 0) atomicAdd(block_count + g, count[g]);
    }
    __syncthreads();
    if (threadIdx.x < kGroups * kSums) atomicAdd(sums + threadIdx.x, block_sum[threadIdx.x]);
    if (threadIdx.x < kGroups) atomicAdd(counts + threadIdx.x, block_count[threadIdx.x]);
}

__global__ void six_groups(uint8_t* group, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) group[i] %= kGroups;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 6291456, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % 4 == 0, "--rows must be a multiple of 4");
    float *quantity = device_alloc<float>(rows), *price = device_alloc<float>(rows);
    float *discount = device_alloc<float>(rows), *tax = device_alloc<float>(rows);
    int *date = device_alloc<int>(rows), *counts = device_alloc<int>(kGroups);
    uint8_t* group = device_alloc<uint8_t>(rows);
    double* sums = device_alloc<double>(kGroups * kSums);
    fill_uniform(quantity, rows, key, 1.0f, 50.0f);
    fill_uniform(price, rows, key + 1, 900.0f, 105000.0f);
    fill_uniform(discount, rows, key + 2, 0.0f, 0.1f);
    fill_uniform(tax, rows, key + 3, 0.0f, 0.08f);
    fill_uniform(date, rows, key + 4, 0.0f, 2557.0f);
    fill_uniform(group, rows, key + 5, 0, 1);
    six_groups<<<1056, 256>>>(group, rows);
    const int last_date = 2490;
    Columns columns{reinterpret_cast<float4*>(quantity), reinterpret_cast<float4*>(price),     reinterpret_cast<float4*>(discount),
                    reinterpret_cast<float4*>(tax),      reinterpret_cast<int4*>(date), reinterpret_cast<uchar4*>(group)};
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(sums, 0, kGroups * kSums * sizeof(double)));
        CHECK_CUDA(cudaMemsetAsync(counts, 0, kGroups * sizeof(int)));
        if (fix) summary_private<<<264, 256>>>(columns, size_t(rows) / 4, last_date, sums, counts);
        else summary_direct<<<264, 256>>>(columns, size_t(rows) / 4, last_date, sums, counts);
    };
    launch_once(launch);
    auto hq = to_host(quantity, rows), hp = to_host(price, rows), hd = to_host(discount, rows), ht = to_host(tax, rows);
    auto hdate = to_host(date, rows);
    auto hg = to_host(group, rows);
    std::vector<double> want(kGroups * kSums);
    std::vector<int> number(kGroups);
    for (int i = 0; i < rows; ++i) {
        if (hdate[i] > last_date) continue;
        double term[kSums];
        terms({hq[i], hp[i], hd[i], ht[i], hdate[i], hg[i]}, term);
        for (int s = 0; s < kSums; ++s) want[hg[i] * kSums + s] += term[s];
        ++number[hg[i]];
    }
    double error = 0;
    auto got = to_host(sums, kGroups * kSums);
    for (int i = 0; i < kGroups * kSums; ++i) {
        double e = std::fabs(got[i] - want[i]) / want[i];
        error = e <= error ? error : e;
    }
    if (to_host(counts, kGroups) != number) error = INFINITY;
    return report("faults/n-groupby", median_us(launch, reps), 0, 21.0 * rows, error, 1e-6);
}
