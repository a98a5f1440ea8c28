// One Jacobi sweep of the 2-D Laplace equation, boundary kept.
#include "h_harness.cuh"

constexpr int kRows = 8;

__global__ void jacobi_sweep(const float* __restrict__ in, float* __restrict__ out, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y0 = (blockIdx.y * blockDim.y + threadIdx.y) * kRows;
    if (x >= width || y0 >= height) return;
    float above = y0 > 0 ? in[size_t(y0 - 1) * width + x] : 0.0f;
    float here = in[size_t(y0) * width + x];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        int y = y0 + i;
        if (y >= height) break;
        size_t at = size_t(y) * width + x;
        float below = y + 1 < height ? in[at + width] : 0.0f;
        bool inside = x > 0 && x < width - 1 && y > 0 && y < height - 1;
        out[at] = inside ? 0.25f * (above + below + in[at - 1] + in[at + 1]) : here;
        above = here;
        here = below;
    }
}

struct Reference {
    const float* in;
    int height, width;
    __device__ double operator()(size_t i) const {
        int x = int(i % width), y = int(i / width);
        if (x == 0 || x == width - 1 || y == 0 || y == height - 1) return in[i];
        return 0.25 * (double(in[i - 1]) + in[i + 1] + in[i - width] + in[i + width]);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    int height = positive(args, "height", 6400, 32768), width = positive(args, "width", 10240, 32768);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(height) * width;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(in, n, key, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    dim3 block(64, 5), grid(blocks_for(width, 64), blocks_for(height, 5 * kRows));
    auto launch = [&] { jacobi_sweep<<<grid, block>>>(in, out, height, width); };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, height, width});
    double us = median_us(launch, reps);
    return report("faults/h-jacobi", us, 0, 8.0 * double(n), error, 1e-6);
}
