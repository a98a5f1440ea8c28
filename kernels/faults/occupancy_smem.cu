// Table look-up of n indices, the table of 32768 small values in shared memory: as words (128 KB, one block of 8 warps
// an SM), or as bytes (32 KB, 48 warps).
#include "memory.cuh"

constexpr int ENTRIES = 32768;

template <class T>
__device__ void look_up(const uint8_t* __restrict__ table, const uint4* __restrict__ index, uint4* __restrict__ out,
                        unsigned quads) {
    extern __shared__ __align__(16) unsigned char bytes[];
    T* local = reinterpret_cast<T*>(bytes);
#pragma unroll 4
    for (int i = threadIdx.x; i < ENTRIES; i += 256) local[i] = table[i];
    __syncthreads();
#pragma unroll 1
    for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < quads; i += gridDim.x * 256) {
        uint4 v = index[i];
        out[i] = make_uint4(local[v.x], local[v.y], local[v.z], local[v.w]);
    }
}

__global__ void __launch_bounds__(256, 1) look_up_words(const uint8_t* table, const uint4* index, uint4* out, unsigned quads) {
    look_up<unsigned>(table, index, out, quads);
}

__global__ void __launch_bounds__(256) look_up_bytes(const uint8_t* table, const uint4* index, uint4* out, unsigned quads) {
    look_up<uint8_t>(table, index, out, quads);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 4);
    args.done();
    auto table = device_alloc<uint8_t>(ENTRIES);
    auto index = device_alloc<unsigned>(n), out = device_alloc<unsigned>(n);
    fill_uniform(table, ENTRIES, s, 0, 1);
    fill_uniform(index, n, s + 1, 0, float(ENTRIES));
    poison(out, 4 * n);
    auto quads = reinterpret_cast<const uint4*>(index);
    auto vectors = reinterpret_cast<uint4*>(out);
    int shared = ENTRIES * (fault ? 4 : 1), blocks = 0;
    auto kernel = fault ? look_up_words : look_up_bytes;
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, shared));
    require(blocks > 0, "this GPU's shared memory is too small for the table");
    blocks *= sm_count();
    auto launch = [&] { kernel<<<blocks, 256, shared>>>(table, quads, vectors, unsigned(n / 4)); };
    run_once(launch);
    auto t = to_host(table, ENTRIES);
    auto at = to_host(index, n);
    double error = mismatch(out, n, [&](size_t i) { return unsigned(t[at[i]]); });
    return report(fault ? "faults/look-up-words" : "faults/look-up-bytes", median_us(launch, r), 0, 8.0 * n, error, 0);
}
