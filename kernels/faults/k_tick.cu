// One explicit step of the heat equation on a small plate: what a time loop launches thousands of times.
#include "h_harness.cuh"
#include "pair.cuh"

__host__ __device__ inline float heat(float middle, float left, float right, float up, float down) {
    return fmaf(0.2f, (left + right) + (up + down) - 4.0f * middle, middle);
}

__global__ void __launch_bounds__(256) heat_step(const float* __restrict__ in, float* __restrict__ out, int side) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, i = y * side + x;
    float middle = in[i];
    bool edge = x == 0 || y == 0 || x == side - 1 || y == side - 1;
    out[i] = edge ? middle : heat(middle, in[i - 1], in[i + 1], in[i - side], in[i + side]);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int side = positive(args, "side", 192, 8192);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(side % 32 == 0, "--side must be a multiple of 32");
    size_t n = size_t(side) * side;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    auto launch = [&] { heat_step<<<dim3(side / 32, side / 8), dim3(32, 8)>>>(in, out, side); };
    launch_once(launch);
    std::vector<float> from = to_host(in, n);
    auto wanted = [&](size_t i) {
        size_t x = i % side, y = i / side, last = side - 1;
        return x == 0 || y == 0 || x == last || y == last ? from[i] : heat(from[i], from[i - 1], from[i + 1], from[i - side], from[i + side]);
    };
    double error = sampled_error(to_host(out, n), wanted, n);
    return report("faults/k-tick", median_us(launch, reps), 0, 8.0 * n, error, 1e-6);
}
