// Four-dimensional stencil over an arbitrary list of neighbour offsets, on a padded array with run-time strides.
#include "pair.cuh"
constexpr int kMax = 128;
struct Offsets {
    int64_t x[kMax], y[kMax], z[kMax], w[kMax];
};
__constant__ Offsets offsets;
__constant__ int linear[kMax];

struct Shape {
    int64_t side, sx, sy, sz, sw;  // elements a side inside the padding, and strides of the padded array
};

// The address of every neighbour is computed from its four coordinates.
__global__ void __launch_bounds__(256) stencil_coordinates(const float* in, const float* weight, float* out, Shape s, int count, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int side = int(s.side), r = int(i);
    int64_t x = r % side + 1, y = r / side % side + 1, z = r / (side * side) % side + 1, w = r / (side * side * side) + 1;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < count; ++k) {
        int64_t at = (x + offsets.x[k]) * s.sx + (y + offsets.y[k]) * s.sy + (z + offsets.z[k]) * s.sz + (w + offsets.w[k]) * s.sw;
        sum = fmaf(weight[k], in[at], sum);
    }
    out[i] = sum;
}

// One base address a thread; the neighbours' distances were summed up once, on the host.
__global__ void __launch_bounds__(256) stencil_distances(const float* in, const float* weight, float* out, Shape s, int count, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int side = int(s.side), r = int(i);
    int64_t x = r % side + 1, y = r / side % side + 1, z = r / (side * side) % side + 1, w = r / (side * side * side) + 1;
    int at = int(x * s.sx + y * s.sy + z * s.sz + w * s.sw);
    float sum = 0;
#pragma unroll 9
    for (int k = 0; k < count; ++k) sum = fmaf(weight[k], in[at + linear[k]], sum);
    out[i] = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int side = int(args.get("side", 48)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(side > 0 && side <= 96, "--side must be between 1 and 96");
    int64_t pad = side + 2, n = int64_t(side) * side * side * side, cells = pad * pad * pad * pad;
    Shape shape{side, 1, pad, pad * pad, pad * pad * pad};
    Offsets host{};
    int flat[kMax] = {};
    int count = 0;
    for (int w = -1; w <= 1; ++w)
        for (int z = -1; z <= 1; ++z)
            for (int y = -1; y <= 1; ++y)
                for (int x = -1; x <= 1; ++x, ++count) {
                    host.x[count] = x, host.y[count] = y, host.z[count] = z, host.w[count] = w;
                    flat[count] = int(x * shape.sx + y * shape.sy + z * shape.sz + w * shape.sw);
                }
    CHECK_CUDA(cudaMemcpyToSymbol(offsets, &host, sizeof host));
    CHECK_CUDA(cudaMemcpyToSymbol(linear, flat, sizeof flat));
    float *in = device_alloc<float>(cells), *weight = device_alloc<float>(count), *out = device_alloc<float>(n);
    fill_uniform(in, cells, key, -1.f, 1.f);
    fill_uniform(weight, count, key + 1, -1.f, 1.f);
    auto hi = to_host(in, cells), hw = to_host(weight, count);
    auto reference = [&](size_t i) {
        int64_t r = i, x = r % side + 1, y = r / side % side + 1, z = r / (side * side) % side + 1, w = r / (int64_t(side) * side * side) + 1;
        double sum = 0;
        for (int k = 0; k < count; ++k) sum += double(hw[k]) * hi[x * shape.sx + y * shape.sy + z * shape.sz + w * shape.sw + flat[k]];
        return sum;
    };
    auto launch = [&] {
        int blocks = int((n + 255) / 256);
        if (fault) stencil_coordinates<<<blocks, 256>>>(in, weight, out, shape, count, n);
        else stencil_distances<<<blocks, 256>>>(in, weight, out, shape, count, n);
    };
    return run_checked(fault ? "faults/stencil-coordinates" : "faults/stencil-distances", reps, launch, out, n, reference,
                       2.0 * count * n, 4.0 * (cells + n), 1e-4);
}
