// y = W x of a layer whose bf16 weights were offloaded. --weights host: the kernel reads them in pinned memory over the link;
// device: they were brought back before.
#include "p_harness.cuh"

__global__ void __launch_bounds__(256) offloaded_linear(const uint4* __restrict__ w, const float* __restrict__ x, float* __restrict__ y, int rows,
                                                        int width) {
    extern __shared__ float sx[];
    for (int i = threadIdx.x; i < width; i += 256) sx[i] = x[i];
    __syncthreads();
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const uint4* from = w + size_t(row) * (width / 8);
    float sum = 0;
#pragma unroll 4
    for (int i = lane; i < width / 8; i += 32) {
        uint4 raw = from[i];
        const float4 *v = reinterpret_cast<const float4*>(sx) + 2 * i;
        float2 a = p_unpack(raw.x), b = p_unpack(raw.y), c = p_unpack(raw.z), d = p_unpack(raw.w);
        sum += a.x * v[0].x + a.y * v[0].y + b.x * v[0].z + b.y * v[0].w + c.x * v[1].x + c.y * v[1].y + d.x * v[1].z + d.y * v[1].w;
    }
#pragma unroll
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, s);
    if (lane == 0) y[row] = sum;
}

struct Reference {
    const __nv_bfloat16* w;
    const float* x;
    int width;
    __device__ double operator()(size_t row) const {
        double sum = 0;
        for (int i = 0; i < width; ++i) sum += double(__bfloat162float(w[row * width + i])) * x[i];
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string place = args.get_str("weights", "host");
    require(place == "host" || place == "device", "--weights must be host or device, got " + place);
    int rows = positive(args, "rows", 28672, 1 << 17), width = positive(args, "width", 4096, 8192);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(width % 256 == 0, "--width must be a multiple of 256");
    size_t n = size_t(rows) * width;
    auto* device = device_alloc<__nv_bfloat16>(n);
    float *x = device_alloc<float>(width), *y = device_alloc<float>(rows);
    fill_uniform(device, n, key, -1.0f, 1.0f);
    fill_uniform(x, size_t(width), key + 1, -1.0f, 1.0f);
    poison(y, size_t(rows) * 4);
    const void* weights = device;
    if (place == "host") {
        void* pinned = nullptr;
        CHECK_CUDA(cudaHostAlloc(&pinned, n * 2, cudaHostAllocMapped));
        CHECK_CUDA(cudaMemcpy(pinned, device, n * 2, cudaMemcpyDeviceToHost));
        void* seen = nullptr;
        CHECK_CUDA(cudaHostGetDevicePointer(&seen, pinned, 0));
        weights = seen;
    }
    auto launch = [&] {
        offloaded_linear<<<blocks_for(rows, 8), 256, size_t(width) * 4>>>(static_cast<const uint4*>(weights), x, y, rows, width);
    };
    launch_once(launch);
    double error = device_error(y, size_t(rows), Reference{device, x, width});
    return report("faults/p-offload", median_us(launch, reps), 0, 2.0 * n, error, 1e-4);
}
