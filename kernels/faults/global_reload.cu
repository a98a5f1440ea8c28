// FIR filter with 25 taps: every tap loaded from global memory, or a window of registers shared by four outputs.
#include "memory.cuh"

constexpr int TAPS = 25;
__constant__ float taps[TAPS];

// Each input is loaded by 25 threads. L1 serves that, but every tap is a load instruction.
__global__ void __launch_bounds__(256) filter_points(const float* __restrict__ in, float* __restrict__ out, unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float total = 0;
#pragma unroll
    for (int k = 0; k < TAPS; ++k) total = fmaf(taps[k], in[i + k], total);
    out[i] = total;
}

__global__ void __launch_bounds__(256) filter_windows(const float4* __restrict__ in, float4* __restrict__ out,
                                                      unsigned n4) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n4) return;
    float window[TAPS + 3], total[4] = {};
#pragma unroll
    for (int k = 0; k < (TAPS + 3) / 4; ++k) {
        float4 v = in[i + k];
        window[4 * k] = v.x, window[4 * k + 1] = v.y, window[4 * k + 2] = v.z, window[4 * k + 3] = v.w;
    }
#pragma unroll
    for (int k = 0; k < TAPS; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) total[j] = fmaf(taps[k], window[k + j], total[j]);
    out[i] = make_float4(total[0], total[1], total[2], total[3]);
}
static_assert((TAPS + 3) % 4 == 0, "the window is whole vectors");

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 4), padded = n + TAPS + 3;
    args.done();
    auto in = device_alloc<float>(padded), out = device_alloc<float>(n);
    fill_uniform(in, padded, s, -1, 1);
    float weights[TAPS];
    for (int k = 0; k < TAPS; ++k) weights[k] = 1.0f / float(k + 2);
    CHECK_CUDA(cudaMemcpyToSymbol(taps, weights, sizeof weights));
    poison(out, 4 * n);
    auto launch = [&] {
        if (fault) filter_points<<<unsigned((n + 255) / 256), 256>>>(in, out, unsigned(n));
        else
            filter_windows<<<unsigned((n / 4 + 255) / 256), 256>>>(reinterpret_cast<float4*>(in),
                                                                   reinterpret_cast<float4*>(out), unsigned(n / 4));
    };
    run_once(launch);
    auto h = to_host(in, padded);
    double error = error_against(out, n, [&](size_t i) {
        double total = 0;
        for (int k = 0; k < TAPS; ++k) total += double(weights[k]) * h[i + k];
        return total;
    });
    return report(fault ? "faults/filter-points" : "faults/filter-windows", median_us(launch, r), 2.0 * TAPS * n,
                  8.0 * n, error, 1e-5);
}
