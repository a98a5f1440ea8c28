// im2col for a 3 x 3 convolution with padding 1: columns[image][channel * 9 + tap][y * width + x].
#include "h_harness.cuh"

__global__ void __launch_bounds__(256) unfold(const float* __restrict__ x, float* __restrict__ columns, int channels, int height, int width,
                                              int kernel, int pad, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int ox = i % width, oy = i / width % height;
    int tap = i / (width * height) % (kernel * kernel);
    int channel = i / (width * height * kernel * kernel) % channels, image = i / (width * height * kernel * kernel * channels);
    int ix = ox + tap % kernel - pad, iy = oy + tap / kernel - pad;
    float v = 0;
    if (ix >= 0 && ix < width && iy >= 0 && iy < height) v = x[((size_t(image) * channels + channel) * height + iy) * width + ix];
    columns[i] = v;
}

// One block writes all nine taps of a (channel, image): four pixels a thread, places from the launch's shape.
__global__ void __launch_bounds__(256) unfold_planes(const float* __restrict__ x, float* __restrict__ columns, int height, int width) {
    size_t plane = blockIdx.y * size_t(gridDim.x) + blockIdx.x, area = size_t(height) * width;
    const float* from = x + plane * area;
    float* to = columns + plane * 9 * area;
    int ox = threadIdx.x * 4;
    for (int oy = threadIdx.y; oy < height; oy += blockDim.y)
#pragma unroll
        for (int ky = 0; ky < 3; ++ky) {
            int iy = oy + ky - 1;
            float v[6] = {};
            if (iy >= 0 && iy < height) {
                const float* row = from + size_t(iy) * width + ox;
                float4 mid = *reinterpret_cast<const float4*>(row);
                v[0] = ox ? row[-1] : 0.0f;
                v[1] = mid.x;
                v[2] = mid.y;
                v[3] = mid.z;
                v[4] = mid.w;
                v[5] = ox + 4 < width ? row[4] : 0.0f;
            }
#pragma unroll
            for (int kx = 0; kx < 3; ++kx)
                *reinterpret_cast<float4*>(to + (ky * 3 + kx) * area + size_t(oy) * width + ox) =
                    make_float4(v[kx], v[kx + 1], v[kx + 2], v[kx + 3]);
        }
}

struct Reference {
    const float* x;
    int height, width;
    __device__ double operator()(size_t i) const {
        size_t area = size_t(height) * width, pixel = i % area, tap = i / area % 9, plane = i / area / 9;
        int ix = int(pixel % width) + int(tap % 3) - 1, iy = int(pixel / width) + int(tap / 3) - 1;
        return ix >= 0 && ix < width && iy >= 0 && iy < height ? double(x[plane * area + size_t(iy) * width + ix]) : 0.0;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int images = positive(args, "images", 16, 1024), channels = positive(args, "channels", 64, 4096);
    int height = positive(args, "height", 112, 1024), width = positive(args, "width", 112, 1024);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t in = size_t(images) * channels * height * width, n = in * 9;
    require(width % 4 == 0 && width <= 1024 && n < (1ull << 31), "--width must be a multiple of 4, the columns fewer than 2^31");
    float *x = device_alloc<float>(in), *columns = device_alloc<float>(n);
    fill_uniform(x, in, key, -1.0f, 1.0f);
    poison(columns, n * sizeof(float));
    auto launch = [&] {
        if (fix)
            unfold_planes<<<dim3(channels, images), dim3(width / 4, std::max(1, 224 / (width / 4)))>>>(x, columns, height, width);
        else
            unfold<<<blocks_for(n, 256), 256>>>(x, columns, channels, height, width, 3, 1, int(n));
    };
    launch_once(launch);
    double error = device_error(columns, n, Reference{x, height, width});
    return report("faults/m-unfold", median_us(launch, reps), 0, 4.0 * (double(n) + double(in)), error, 0);
}
