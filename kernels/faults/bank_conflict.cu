// Transpose through a shared tile whose columns lie in one bank, or in 32.
#include "memory.cuh"

template <int PITCH>
__device__ void transpose_tile(const float* __restrict__ in, float* __restrict__ out, int n) {
    __shared__ float tile[64 * PITCH];
    int tx = threadIdx.x % 64, ty = threadIdx.x / 64, col = blockIdx.x * 64, row = blockIdx.y * 64;
#pragma unroll
    for (int i = 0; i < 64; i += 4) tile[(ty + i) * PITCH + tx] = in[size_t(row + ty + i) * n + col + tx];
    __syncthreads();
    // Lanes read down a column: with a pitch of 64 words all 32 hit one bank and the read takes 32 wavefronts.
#pragma unroll
    for (int i = 0; i < 64; i += 4) out[size_t(col + ty + i) * n + row + tx] = tile[tx * PITCH + ty + i];
}

__global__ void __launch_bounds__(256) transpose_pitch64(const float* __restrict__ in, float* __restrict__ out, int n) {
    transpose_tile<64>(in, out, n);
}

__global__ void __launch_bounds__(256) transpose_pitch65(const float* __restrict__ in, float* __restrict__ out, int n) {
    transpose_tile<65>(in, out, n);
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
        dim3 grid(n / 64, n / 64);
        if (fault) transpose_pitch64<<<grid, 256>>>(in, out, n);
        else transpose_pitch65<<<grid, 256>>>(in, out, n);
    };
    run_once(launch);
    auto h = to_host(in, count);
    double error = mismatch(out, count, [&](size_t i) { return h[(i % n) * n + i / n]; });
    return report(fault ? "faults/bank-conflict-pitch64" : "faults/bank-conflict-pitch65", median_us(launch, r), 0,
                  8.0 * count, error, 0);
}
