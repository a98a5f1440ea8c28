// Product of a banded CSR matrix (128 entries a row) and a vector: a thread a row, or a warp for four rows at a time.
#include "memory.cuh"

constexpr int PER_ROW = 128;

// Neighbouring lanes are a whole row apart: a load touches 32 sectors for 32 words, and the lines of all the rows at
// hand do not fit L1 until their other words are wanted.
__global__ void __launch_bounds__(256) multiply_by_thread(const unsigned* __restrict__ start,
                                                          const unsigned* __restrict__ column,
                                                          const float* __restrict__ value, const float* __restrict__ x,
                                                          float* __restrict__ y, unsigned rows) {
    unsigned row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    float total = 0;
    for (unsigned k = start[row]; k < start[row + 1]; ++k) total = fmaf(value[k], x[column[k]], total);
    y[row] = total;
}

// A lane reads the bounds of one of the warp's rows ahead; then the warp has 4 KB of the matrix under way at a time (128 KB an SM).
constexpr unsigned ROWS = 16, AT_ONCE = 4, PIECES = 4;
__global__ void __launch_bounds__(256, 4) multiply_by_warp(const unsigned* __restrict__ start,
                                                           const unsigned* __restrict__ column,
                                                           const float* __restrict__ value, const float* __restrict__ x,
                                                           float* __restrict__ y, unsigned rows) {
    unsigned lane = threadIdx.x % 32, first = (blockIdx.x * 8 + threadIdx.x / 32) * ROWS;
    if (first >= rows) return;
    unsigned from = start[min(first + lane, rows)], to = start[min(first + lane + 1, rows)];
    float result = 0;
#pragma unroll 1
    for (unsigned row = 0; row < ROWS; row += AT_ONCE) {
        unsigned at[AT_ONCE], end[AT_ONCE], shortest = ~0u;
        float total[AT_ONCE] = {};
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; ++j) {
            at[j] = __shfl_sync(~0u, from, row + j), end[j] = __shfl_sync(~0u, to, row + j);
            shortest = min(shortest, end[j] - at[j]);
            at[j] += lane;
        }
#pragma unroll 1
        for (unsigned left = shortest; left >= 32 * PIECES; left -= 32 * PIECES) {
            unsigned c[AT_ONCE][PIECES];
            float v[AT_ONCE][PIECES];
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j)
#pragma unroll
                for (unsigned p = 0; p < PIECES; ++p) c[j][p] = column[at[j] + p * 32], v[j][p] = value[at[j] + p * 32];
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
#pragma unroll
                for (unsigned p = 0; p < PIECES; ++p) total[j] = fmaf(v[j][p], x[c[j][p]], total[j]);
                at[j] += 32 * PIECES;
            }
        }
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; ++j)  // what its rows have beyond
#pragma unroll 1
            for (; at[j] < end[j]; at[j] += 32) total[j] = fmaf(value[at[j]], x[column[at[j]]], total[j]);
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; ++j) {
            for (int step = 16; step; step /= 2) total[j] += __shfl_xor_sync(~0u, total[j], step);
            if (lane == row + j) result = total[j];
        }
    }
    if (lane < ROWS && first + lane < rows) y[first + lane] = result;
}

// Row r has one entry in each pair of columns from r on, so x stays in cache and the matrix is the traffic.
__global__ void make_rows(unsigned* start, unsigned* column, unsigned rows, unsigned long long key) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i <= rows) start[i] = unsigned(i * PER_ROW);
    if (i < size_t(rows) * PER_ROW)
        column[i] = unsigned(i / PER_ROW + i % PER_ROW * 2 + (diagnose_hash(diagnose_hash(key) + i) & 1));
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t rows = size_arg(args, "rows", 1 << 19), entries = rows * PER_ROW, width = rows + 2 * PER_ROW;
    require(rows <= (1 << 24), "--rows is at most 2^24");
    args.done();
    auto start = device_alloc<unsigned>(rows + 1), column = device_alloc<unsigned>(entries);
    auto value = device_alloc<float>(entries), x = device_alloc<float>(width), y = device_alloc<float>(rows);
    fill_uniform(value, entries, s, 0, 1);
    fill_uniform(x, width, s + 1, 0, 1);
    make_rows<<<unsigned((entries + 255) / 256), 256>>>(start, column, unsigned(rows), s + 2);
    poison(y, 4 * rows);
    auto launch = [&] {
        if (fault) multiply_by_thread<<<unsigned((rows + 255) / 256), 256>>>(start, column, value, x, y, unsigned(rows));
        else multiply_by_warp<<<unsigned((rows + 8 * ROWS - 1) / (8 * ROWS)), 256>>>(start, column, value, x, y, unsigned(rows));
    };
    run_once(launch);
    auto hs = to_host(start, rows + 1), hc = to_host(column, entries);
    auto hv = to_host(value, entries), hx = to_host(x, width);
    double error = error_against(y, rows, [&](size_t row) {
        double total = 0;
        for (unsigned k = hs[row]; k < hs[row + 1]; ++k) total += double(hv[k]) * hx[hc[k]];
        return total;
    });
    return report(fault ? "faults/sparse-by-thread" : "faults/sparse-by-warp", median_us(launch, r), 0, 8.0 * entries,
                  error, 1e-5);
}
