// Sum, sum of squares, minimum and maximum of every row of 32 floats. `fault`: a lane an element, all four by shuffles over
// the warp; `fix`: eight lanes a row, four elements each.
#include "g_util.cuh"
using namespace held;

template <bool QUADS>
__global__ void __launch_bounds__(256) lanes_statistics(const float* in, float4* out, int rows) {
    int lane = threadIdx.x % 32, warp = (blockIdx.x * 256 + threadIdx.x) / 32, warps = gridDim.x * 8;
    constexpr int PER = QUADS ? 4 : 1;
#pragma unroll 4
    for (int row = warp * PER; row < rows; row += warps * PER) {
        float sum, squares, low, high;
        if (QUADS) {
            float4 v = __ldcs(reinterpret_cast<const float4*>(in + size_t(row) * 32) + lane);
            sum = (v.x + v.y) + (v.z + v.w);
            squares = (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
            low = fminf(fminf(v.x, v.y), fminf(v.z, v.w));
            high = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
        } else {
            sum = low = high = __ldcs(in + size_t(row) * 32 + lane);
            squares = sum * sum;
        }
#pragma unroll
        for (int o = QUADS ? 4 : 16; o; o >>= 1) {
            sum += __shfl_xor_sync(0xffffffffu, sum, o);
            squares += __shfl_xor_sync(0xffffffffu, squares, o);
            low = fminf(low, __shfl_xor_sync(0xffffffffu, low, o));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, o));
        }
        if (QUADS) {
            if (lane % 8 == 0) out[row + lane / 8] = make_float4(sum, squares, low, high);
        } else {
            if (lane == 0) out[row] = make_float4(sum, squares, low, high);
        }
    }
}

__global__ void reference_statistics(const float* in, float4* out, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0, squares = 0;
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < 32; ++i) {
        float v = in[size_t(row) * 32 + i];
        sum += v;
        squares += double(v) * v;
        low = fminf(low, v);
        high = fmaxf(high, v);
    }
    out[row] = make_float4(float(sum), float(squares), low, high);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int rows = int(args.get("rows", 4194304));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(rows > 0 && rows <= 33554432 && rows % 4 == 0, "--rows must be a multiple of 4, at most 33554432");
    float* in = device_alloc<float>(size_t(rows) * 32);
    float4 *out = device_alloc<float4>(rows), *ref = device_alloc<float4>(rows);
    fill_uniform(in, size_t(rows) * 32, s, -1.0f, 1.0f);
    reference_statistics<<<(rows + 255) / 256, 256>>>(in, ref, rows);
    poison(out, size_t(rows) * 16);
    finish();
    auto kernel = fix ? lanes_statistics<true> : lanes_statistics<false>;
    auto launch = [&] { kernel<<<1056, 256>>>(in, out, rows); };
    launch();
    finish();
    double error = device_error(reinterpret_cast<float*>(out), reinterpret_cast<float*>(ref), size_t(rows) * 4);
    return report("faults/g-lanes", median_us(launch, reps), 0, 144.0 * rows, error, 1e-5);
}
