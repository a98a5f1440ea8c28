// How fast 1 GiB is read into shared memory, by path: boxes of TMA (by what a miss brings into L2), bulk copies, cp.async. Two
// blocks an SM, three stages of 32 KiB each, as attention/decode has them; block b takes chunk b, b + gridDim.x, ...
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a tests/gpu/read_paths.cu -o paths && ./paths
#include "../../kernels/common.cuh"
#include "../../kernels/hopper.cuh"
#include "../../kernels/mma.cuh"

using namespace hopper;

constexpr int kChunk = 32768, kStages = 3, kThreads = 128;

enum class Path { boxes, wide, bulk, async };

// boxes: 128 bytes of 128 rows, twice; wide: both halves of a row together.
template <Path P>
__global__ void __launch_bounds__(kThreads)
    read(const __grid_constant__ CUtensorMap map, const unsigned char* in, int chunks, float* out) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ uint64_t full[kStages];
    uint32_t base = address(shared);
    float sum = 0;
    auto load = [&](int turn) {
        int chunk = blockIdx.x + turn * gridDim.x, slot = turn % kStages;
        uint32_t to = base + slot * kChunk;
        if constexpr (P == Path::async) {
            if (chunk < chunks)
                for (int i = threadIdx.x * 16; i < kChunk; i += kThreads * 16)
                    copy_async_16(to + i, in + size_t(chunk) * kChunk + i);
            copy_commit();
        } else if (threadIdx.x == 0 && chunk < chunks) {
            barrier_expect(&full[slot], kChunk);
            if constexpr (P == Path::bulk)
                for (int i = 0; i < 2; ++i) bulk_load(to + i * 16384, in + size_t(chunk) * kChunk + i * 16384, 16384, &full[slot]);
            else if constexpr (P == Path::boxes)
                for (int i = 0; i < 2; ++i) tma_load(to + i * 16384, &map, &full[slot], i * 64, chunk * 128);
            else
                tma_load_4d(to, &map, &full[slot], 0, 0, chunk * 128, 0);
        }
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) barrier_init(&full[i], 1);
        barrier_init_visible();
    }
    __syncthreads();
    for (int turn = 0; turn < kStages - 1; ++turn) load(turn);
    for (int turn = 0; blockIdx.x + turn * gridDim.x < chunks; ++turn) {
        int slot = turn % kStages;
        if constexpr (P == Path::async) copy_wait<kStages - 2>();
        else barrier_wait(&full[slot], turn / kStages % 2);
        if constexpr (P == Path::async) __syncthreads();
        sum += *reinterpret_cast<volatile float*>(shared + slot * kChunk + threadIdx.x * 16);
        __syncthreads();
        load(turn + kStages - 1);
    }
    if (sum == 12345.f) *out = sum;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();
    size_t bytes = size_t(1) << 30;
    auto* in = device_alloc<__nv_bfloat16>(bytes / 2);
    auto* out = device_alloc<float>(1);
    fill_uniform(in, bytes / 2, key, -1, 1);
    int chunks = int(bytes / kChunk), sms = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    auto time = [&](const char* name, auto kernel, CUtensorMap map) {
        CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStages * kChunk));
        double us = median_us([&] {
            kernel<<<2 * sms, kThreads, kStages * kChunk>>>(map, reinterpret_cast<unsigned char*>(in), chunks, out);
        }, runs);
        CHECK_CUDA(cudaDeviceSynchronize());
        std::printf("read %-16s %.1f us %.1f GB/s\n", name, us, bytes / us * 1e-3);
    };
    const char* names[] = {"none", "64", "128", "256"};
    CUtensorMap map{};
    for (int l2 = 0; l2 < 4; ++l2) {
        auto promotion = CUtensorMapL2promotion(l2);
        map = matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, in, bytes / 256, 128, 128, 64, Swizzle::b128, promotion);
        time((std::string("boxes, L2 ") + names[l2]).c_str(), read<Path::boxes>, map);
        const uint64_t sizes[] = {64, 2, bytes / 256, 1}, strides[] = {128, 256, bytes};
        const uint32_t box[] = {64, 2, 128, 1};
        map = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, in, 4, sizes, strides, box, Swizzle::b128, promotion);
        time((std::string("wide, L2 ") + names[l2]).c_str(), read<Path::wide>, map);
    }
    time("bulk", read<Path::bulk>, map);
    time("cp.async", read<Path::async>, map);
    return 0;
}
