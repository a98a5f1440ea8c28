// Transpose of an n x n matrix: each lane reads its own row of the input, or the reads go through a shared tile.
#include "memory.cuh"

// Writes are contiguous; a warp's read touches 32 rows, so 4 of every 32 bytes fetched are used. One row of the
// output a block keeps neighbouring reads of a sector in different SMs, where L1 cannot merge them.
__global__ void transpose_rows(const float* __restrict__ in, float* __restrict__ out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < n) out[size_t(y) * n + x] = in[size_t(x) * n + y];
}

__global__ void __launch_bounds__(256) transpose_tiles(const float* __restrict__ in, float* __restrict__ out, int n) {
    __shared__ float tile[64][65];  // the odd pitch puts a column into 32 banks
    int tx = threadIdx.x % 64, ty = threadIdx.x / 64, col = blockIdx.x * 64, row = blockIdx.y * 64;
#pragma unroll
    for (int i = 0; i < 64; i += 4) tile[ty + i][tx] = in[size_t(row + ty + i) * n + col + tx];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i += 4) out[size_t(col + ty + i) * n + row + tx] = tile[tx][ty + i];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    int n = int(size_arg(args, "n", 8192, 64));
    require(n <= 32768, "--n is at most 32768");
    args.done();
    size_t count = size_t(n) * n;
    float *in = device_alloc<float>(count), *out = device_alloc<float>(count);
    fill_uniform(in, count, s, -1, 1);
    poison(out, count * 4);
    auto launch = [&] {
        if (fault) transpose_rows<<<dim3((n + 255) / 256, n), 256>>>(in, out, n);
        else transpose_tiles<<<dim3(n / 64, n / 64), 256>>>(in, out, n);
    };
    run_once(launch);
    auto h = to_host(in, count);
    double error = mismatch(out, count, [&](size_t i) { return h[(i % n) * n + i / n]; });
    return report(fault ? "faults/transpose-uncoalesced" : "faults/transpose-tiled", median_us(launch, r), 0,
                  8.0 * count, error, 0);
}
