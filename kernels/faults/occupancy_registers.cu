// Sums of a stream, and 192 moments of its rare events: the moments in each thread's registers (8 warps an SM), or sent
// to global memory as they come (64 warps, and registers for four loads each).
#include "memory.cuh"

constexpr int MOMENTS = 192;
constexpr float RARE = 1.0f - 1.0f / 65536;

__global__ void __launch_bounds__(256) moments_held(const float4* __restrict__ in, float* __restrict__ sums,
                                                    float* moments, unsigned n) {
    float held[MOMENTS], total = 0;
#pragma unroll
    for (int k = 0; k < MOMENTS; ++k) held[k] = 0;
#pragma unroll 1
    for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float4 v = in[i];
        total += v.z + v.w;
        if (v.x > RARE) {
            float power = 1;
#pragma unroll
            for (int k = 0; k < MOMENTS; ++k) held[k] += power, power *= v.y;
        }
    }
#pragma unroll
    for (int k = 0; k < MOMENTS; ++k) {
        float sum = held[k];
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (threadIdx.x % 32 == 0) atomicAdd(&moments[k], sum);
    }
    sums[blockIdx.x * 256 + threadIdx.x] = total;
}

// A block sums 4096 vectors, so that whichever SM is ahead takes more blocks.
constexpr unsigned AT_ONCE = 4, PER_BLOCK = 256 * AT_ONCE * 4;

// The lanes share the moments of each event among the warp's values: lane l has powers l, l + 32, ...
__device__ void send_moments(float* moments, bool rare, float y) {
    unsigned lane = threadIdx.x % 32;
    for (unsigned events = __ballot_sync(~0u, rare); events; events &= events - 1) {
        float power = 1, square = __shfl_sync(~0u, y, __ffs(events) - 1);
#pragma unroll
        for (unsigned bit = 1; bit < 32; bit *= 2) {
            if (lane & bit) power *= square;
            square *= square;
        }
#pragma unroll 1
        for (unsigned k = lane; k < MOMENTS; k += 32) atomicAdd(&moments[k], power), power *= square;
    }
}

__global__ void __launch_bounds__(256, 8) moments_sent(const float4* __restrict__ in, float* __restrict__ sums,
                                                         float* moments, unsigned n) {
    float total = 0;
    unsigned end = min(n, (blockIdx.x + 1) * PER_BLOCK);
#pragma unroll 1
    for (unsigned first = blockIdx.x * PER_BLOCK; first < end; first += 256 * AT_ONCE) {
        float4 v[AT_ONCE];
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; ++j) {
            unsigned i = first + j * 256 + threadIdx.x;
            v[j] = i < end ? in[i] : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; ++j) {
            total += v[j].z + v[j].w;
            send_moments(moments, v[j].x > RARE, v[j].y);
        }
    }
    sums[blockIdx.x * 256 + threadIdx.x] = total;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 32 << 20);
    args.done();
    int per_sm = 0;
    auto kernel = fault ? moments_held : moments_sent;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, 256, 0));
    unsigned blocks = fault ? sm_count() * per_sm : unsigned((n + PER_BLOCK - 1) / PER_BLOCK);
    auto in = device_alloc<float>(4 * n), sums = device_alloc<float>(blocks * 256), moments = device_alloc<float>(MOMENTS);
    fill_uniform(in, 4 * n, s, 0, 1);
    poison(sums, blocks * 256 * 4);
    CHECK_CUDA(cudaMemset(moments, 0, MOMENTS * 4));
    auto launch = [&] { kernel<<<blocks, 256>>>(reinterpret_cast<float4*>(in), sums, moments, unsigned(n)); };
    run_once(launch);
    auto h = to_host(in, 4 * n);
    std::vector<double> ref(MOMENTS);
    double total = 0;
    for (size_t i = 0; i < n; ++i) {
        total += double(h[4 * i + 2]) + double(h[4 * i + 3]);
        double power = 1;
        for (int k = 0; h[4 * i] > RARE && k < MOMENTS; ++k) ref[k] += power, power *= h[4 * i + 1];
    }
    double error = std::max(sum_error(sums, blocks * 256, total), relative_error(to_host(moments, MOMENTS), ref));
    return report(fault ? "faults/moments-held" : "faults/moments-sent", median_us(launch, r), 0, 16.0 * n, error,
                  1e-4);
}
