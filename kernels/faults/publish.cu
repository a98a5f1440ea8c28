// Warps write rows of results and publish their progress for readers elsewhere: a fence after every row, or one at the end.
#include "pair.cuh"

__device__ __forceinline__ float row_value(float x, int r) { return fmaf(x, 0.5f + r, 1.0f); }

__global__ void publish_rows(const float* x, float* out, int* progress, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0;
    for (int r = 0; r < rows; ++r) {
        if (i < n) out[size_t(r) * n + i] = row_value(v, r);
        __threadfence();
        __syncwarp();
        if (threadIdx.x % 32 == 0) *reinterpret_cast<volatile int*>(progress + i / 32) = r + 1;
    }
}

// Four columns a thread, so that all warps fit at once and their fences come together, behind the last store.
__global__ void publish_once(const float4* x, float4* out, int* progress, int rows, int vectors) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = i < vectors ? x[i] : make_float4(0, 0, 0, 0);
    for (int r = 0; r < rows; ++r)
        if (i < vectors)
            out[size_t(r) * vectors + i] = make_float4(row_value(v.x, r), row_value(v.y, r), row_value(v.z, r), row_value(v.w, r));
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 8 == 0) *reinterpret_cast<volatile int*>(progress + i / 8) = rows;  // a flag for 32 columns
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = wants_fault(args);
    int n = int(args.get("n", 1048576)), rows = int(args.get("rows", 64)), reps = repeats(args);
    auto key = seed(args);
    args.done();
    require(n > 0 && n % 4 == 0 && rows > 0 && rows <= 1024, "--n must be a positive multiple of 4, --rows 1 to 1024");
    size_t total = size_t(n) * rows;
    int blocks = (n + 255) / 256, wide = (n / 4 + 255) / 256;
    float *x = device_alloc<float>(n), *out = device_alloc<float>(total);
    int* progress = device_alloc<int>(wide * 32);
    fill_uniform(x, n, key, -1.f, 1.f);
    auto hx = to_host(x, n);
    auto reference = [&](size_t i) { return double(hx[i % n]) * (0.5 + double(i / n)) + 1.0; };
    auto launch = [&] {
        if (fault) publish_rows<<<blocks, 256>>>(x, out, progress, rows, n);
        else publish_once<<<wide, 256>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(out), progress, rows, n / 4);
    };
    int code = run_checked(fault ? "faults/publish-rows" : "faults/publish-once", reps, launch, out, total, reference, 2.0 * total,
                           4.0 * (n + total), 1e-5, 65536);
    for (int p : to_host(progress, blocks * 8)) require(p == rows, "a warp's progress is wrong");
    return code;
}
