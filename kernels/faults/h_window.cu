// A separable window on a batch of volumes [batch][depth][height][width].
#include "h_harness.cuh"

__global__ void apply_window(const float* __restrict__ in, const float* __restrict__ wz, const float* __restrict__ wy,
                             const float* __restrict__ wx, float* __restrict__ out, size_t n, size_t depth, size_t height,
                             size_t width) {
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    size_t x = i % width;
    size_t y = i / width % height;
    size_t z = i / (width * height) % depth;
    out[i] = in[i] * wz[z] * wy[y] * wx[x];
}

// blockDim: (width / 4, lines); grid: (lines of a plane, depth, batch).
__global__ void apply_window_grid(const float4* __restrict__ in, const float* __restrict__ wz, const float* __restrict__ wy,
                                  const float4* __restrict__ wx, float4* __restrict__ out, int depth, int height) {
    int y = blockIdx.x * blockDim.y + threadIdx.y;
    if (y >= height) return;
    int z = blockIdx.y;
    size_t at = ((size_t(blockIdx.z) * depth + z) * height + y) * blockDim.x + threadIdx.x;
    float4 v = in[at], w = wx[threadIdx.x];
    float line = wz[z] * wy[y];
    v.x *= line * w.x;
    v.y *= line * w.y;
    v.z *= line * w.z;
    v.w *= line * w.w;
    out[at] = v;
}

struct Reference {
    const float *in, *wz, *wy, *wx;
    int depth, height, width;
    __device__ double operator()(size_t i) const {
        int x = int(i % width), y = int(i / width % height), z = int(i / (size_t(width) * height) % depth);
        return double(in[i]) * wz[z] * wy[y] * wx[x];
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int batch = positive(args, "batch", 6, 1024), depth = positive(args, "depth", 150, 4096);
    int height = positive(args, "height", 180, 4096), width = positive(args, "width", 200, 4096);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(!fix || (width % 4 == 0 && width <= 800), "--width must be a multiple of 4 up to 800 for this variant");
    size_t n = size_t(batch) * depth * height * width;
    require(n < (1ull << 31), "the volume is too large");
    float *in = device_alloc<float>(n), *out = device_alloc<float>(n);
    float *wz = device_alloc<float>(depth), *wy = device_alloc<float>(height), *wx = device_alloc<float>(width);
    fill_uniform(in, n, key, -1.0f, 1.0f);
    fill_uniform(wz, depth, key + 1, 0.1f, 1.0f);
    fill_uniform(wy, height, key + 2, 0.1f, 1.0f);
    fill_uniform(wx, width, key + 3, 0.1f, 1.0f);
    poison(out, n * 4);
    auto launch = [&] {
        if (fix)
            apply_window_grid<<<dim3(blocks_for(height, 5), depth, batch), dim3(width / 4, 5)>>>(
                reinterpret_cast<float4*>(in), wz, wy, reinterpret_cast<float4*>(wx), reinterpret_cast<float4*>(out), depth,
                height);
        else
            apply_window<<<blocks_for(n, 256), 256>>>(in, wz, wy, wx, out, n, depth, height, width);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{in, wz, wy, wx, depth, height, width});
    double us = median_us(launch, reps);
    return report("faults/h-window", us, 0, 8.0 * double(n), error, 1e-6);
}
