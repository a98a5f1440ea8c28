// Escape times of the Mandelbrot set. `fault` gives each block a band of rows, `fix` lets warps draw 8 x 32 patches from a counter.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kMost = 320;
constexpr float kLeft = -2.4f, kTop = -2.0f, kSpan = 4.0f;

#ifdef __CUDA_ARCH__
#define MUL(a, b) __fmul_rn(a, b)
#define ADD(a, b) __fadd_rn(a, b)
#else
#define MUL(a, b) ((a) * (b))
#define ADD(a, b) ((a) + (b))
#endif

__host__ __device__ inline int escape(int px, int py, float scale) {
    float cx = fmaf(float(px), scale, kLeft), cy = fmaf(float(py), scale, kTop), x = 0, y = 0;
    int i = 0;
    for (; i < kMost; ++i) {
        float x2 = MUL(x, x), y2 = MUL(y, y);
        if (ADD(x2, y2) > 4.0f) break;
        y = fmaf(ADD(x, x), y, cy);
        x = ADD(ADD(x2, -y2), cx);
    }
    return i;
}

__global__ void __launch_bounds__(1024) render(uint16_t* __restrict__ image, int width, int height, float scale) {
    int rows = (height + gridDim.x - 1) / gridDim.x, first = blockIdx.x * rows, last = min(height, first + rows);
    for (int y = first; y < last; ++y)
        for (int x = threadIdx.x; x < width; x += blockDim.x) image[size_t(y) * width + x] = uint16_t(escape(x, y, scale));
}

__global__ void __launch_bounds__(1024) render_patches(uint16_t* __restrict__ image, int width, int height, float scale, int* next) {
    int lane = threadIdx.x % 32, across = width / 32, patches = across * (height / 8);
    for (;;) {
        int patch = 0;
        if (lane == 0) patch = atomicAdd(next, 1);
        patch = __shfl_sync(0xffffffffu, patch, 0);
        if (patch >= patches) return;
        int x0 = patch % across * 32, y0 = patch / across * 8;
        for (int part = 0; part < 8; ++part) {
            int x = x0 + part % 4 * 8 + lane % 8, y = y0 + part / 4 * 4 + lane / 8;
            image[size_t(y) * width + x] = uint16_t(escape(x, y, scale));
        }
    }
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int size = positive(args, "size", 4096, 32768);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(size % 32 == 0, "--size must be a multiple of 32");
    // The seed moves the view a little: no two runs see the same numbers.
    float scale = kSpan / size * (1.0f + float(key % 1000) * 1e-6f);
    size_t n = size_t(size) * size;
    uint16_t* image = device_alloc<uint16_t>(n);
    int* next = device_alloc<int>(1);
    poison(image, n * sizeof(uint16_t));
    int sms = sm_count();
    auto launch = [&] {
        if (fix) {
            CHECK_CUDA(cudaMemsetAsync(next, 0, sizeof(int)));
            render_patches<<<sms * 2, 1024>>>(image, size, size, scale, next);
        } else {
            render<<<sms, 1024>>>(image, size, size, scale);
        }
    };
    launch_once(launch);
    std::vector<uint16_t> got = to_host(image, n);
    auto wanted = [&](size_t i) { return escape(int(i % size), int(i / size), scale); };
    double error = sampled_error(got, wanted, 20000);
    double steps = 0;
    for (uint16_t v : got) {
        if (v > kMost) error = INFINITY;
        steps += v;
    }
    return report("faults/k-shore", median_us(launch, reps), 8.0 * steps, 0, error, 0);
}
