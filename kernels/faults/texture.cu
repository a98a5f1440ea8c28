// Sum of absolute differences of each pixel's 5 x 5 neighbourhood to the pixel (borders clamped). The pair is one source: the
// manifest builds it with and without -G.
#include "pair.cuh"

__global__ void texture(const float* in, float* out, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    float centre = in[size_t(y) * side + x], sum = 0;
    for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx) {
            int u = min(max(x + dx, 0), side - 1), v = min(max(y + dy, 0), side - 1);
            sum += fabsf(in[size_t(v) * side + u] - centre);
        }
    out[size_t(y) * side + x] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string name = args.get_str("name", "faults/texture-plain");
    int side = int(args.get("side", 4096)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(side > 0 && side <= 32768, "--side must be between 1 and 32768");
    size_t n = size_t(side) * side;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.f, 1.f);
    auto hi = to_host(in, n);
    auto reference = [&](size_t i) {
        int x = int(i % side), y = int(i / side);
        double sum = 0;
        for (int dy = -2; dy <= 2; ++dy)
            for (int dx = -2; dx <= 2; ++dx)
                sum += std::fabs(double(hi[size_t(std::min(std::max(y + dy, 0), side - 1)) * side + std::min(std::max(x + dx, 0), side - 1)]) - hi[i]);
        return sum;
    };
    auto launch = [&] { texture<<<dim3((side + 31) / 32, (side + 7) / 8), dim3(32, 8)>>>(in, out, side); };
    return run_checked(name.c_str(), reps, launch, out, n, reference, 75.0 * n, 8.0 * n, 1e-5, 65536);
}
