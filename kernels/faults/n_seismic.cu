// A seven-point step of a wave model on planes of 64 MB (4096 x 4096). Both launch the same blocks; `fault` goes through a whole
// plane before the next one, so that no neighbour above or below is left in L2, `fix` through strips of 256 rows.
#include "h_harness.cuh"

constexpr int kX = 32, kY = 8;

struct Volume {
    int quads, height, depth;  // a row is 4 * quads wide
    __host__ __device__ size_t at(int q, int y, int z) const { return (size_t(z) * height + y) * quads + q; }
};

struct Place {
    int x, y, z;
};

// Blocks start in the order x, y, z of the grid.
struct PlaneByPlane {
    static dim3 grid(const Volume& v) { return dim3(v.quads / kX, v.height / kY, v.depth); }
    static __device__ Place of(dim3 block, int) { return {int(block.x), int(block.y), int(block.z)}; }
};

struct StripByStrip {
    static constexpr int kRows = 256 / kY;
    static dim3 grid(const Volume& v) { return dim3(v.quads / kX, kRows, v.height / kY / kRows * v.depth); }
    static __device__ Place of(dim3 block, int depth) {
        return {int(block.x), int(block.z) / depth * kRows + int(block.y), int(block.z) % depth};
    }
};

template <class Order>
__global__ void __launch_bounds__(kX * kY) wave_step(const float4* __restrict__ u, float4* __restrict__ out, Volume v, float center, float side) {
    Place p = Order::of(dim3(blockIdx.x, blockIdx.y, blockIdx.z), v.depth);
    int q = p.x * kX + threadIdx.x % kX, y = p.y * kY + threadIdx.x / kX, z = p.z;
    const float* row = reinterpret_cast<const float*>(u + v.at(0, y, z));
    float4 c = u[v.at(q, y, z)];
    float4 n = u[v.at(q, max(y - 1, 0), z)], s = u[v.at(q, min(y + 1, v.height - 1), z)];
    float4 a = u[v.at(q, y, max(z - 1, 0))], b = u[v.at(q, y, min(z + 1, v.depth - 1))];
    float west = row[max(4 * q - 1, 0)], east = row[min(4 * q + 4, 4 * v.quads - 1)];
    out[v.at(q, y, z)] = make_float4(center * c.x + side * (((west + c.y) + (n.x + s.x)) + (a.x + b.x)),
                                     center * c.y + side * (((c.x + c.z) + (n.y + s.y)) + (a.y + b.y)),
                                     center * c.z + side * (((c.y + c.w) + (n.z + s.z)) + (a.z + b.z)),
                                     center * c.w + side * (((c.z + east) + (n.w + s.w)) + (a.w + b.w)));
}

struct Reference {
    const float* u;
    int width, height, depth;
    float center, side;
    __device__ double value(int x, int y, int z) const {
        x = min(max(x, 0), width - 1);
        y = min(max(y, 0), height - 1);
        z = min(max(z, 0), depth - 1);
        return u[(size_t(z) * height + y) * width + x];
    }
    __device__ double operator()(size_t i) const {
        int x = int(i % width), y = int(i / width % height), z = int(i / width / height);
        return double(center) * value(x, y, z) + double(side) * (value(x - 1, y, z) + value(x + 1, y, z) + value(x, y - 1, z) +
                                                                 value(x, y + 1, z) + value(x, y, z - 1) + value(x, y, z + 1));
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int width = positive(args, "width", 4096, 1 << 14), height = positive(args, "height", 4096, 1 << 14), depth = positive(args, "depth", 32, 256);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % (4 * kX) == 0 && height % 256 == 0, "--width must be a multiple of 128, --height of 256");
    size_t n = size_t(width) * height * depth;
    float *u = device_alloc<float>(n), *out = device_alloc<float>(n);
    fill_uniform(u, n, key, 0.0f, 1.0f);
    poison(out, n * sizeof(float));
    Volume v{width / 4, height, depth};
    const float center = 0.375f, side = 0.09375f;
    auto launch = [&] {
        auto* from = reinterpret_cast<const float4*>(u);
        auto* to = reinterpret_cast<float4*>(out);
        if (fix) wave_step<StripByStrip><<<StripByStrip::grid(v), kX * kY>>>(from, to, v, center, side);
        else wave_step<PlaneByPlane><<<PlaneByPlane::grid(v), kX * kY>>>(from, to, v, center, side);
    };
    launch_once(launch);
    double error = device_error(out, n, Reference{u, width, height, depth, center, side});
    return report("faults/n-seismic", median_us(launch, reps), 0, 8.0 * double(n), error, 1e-5);
}
