// Copies through TMA by box size and blocks an SM: one thread a block keeps a ring of boxes on their way, in and out again.
#include "../hopper.cuh"
#include "measure.cuh"

constexpr int kRowBytes = 128, kMostStages = 16;

// Block b copies boxes b, b + gridDim.x, ... `out` null in effect (`store` 0): only reads.
__global__ void copy(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int rows, int boxes,
                     int stages, int store, Stamp* stamps) {
    extern __shared__ uint8_t raw[];
    __shared__ uint64_t full[kMostStages];
    const uint32_t tiles = (hopper::address(raw) + 1023) / 1024 * 1024, box_bytes = uint32_t(rows) * kRowBytes;
    Stamp stamp;
    begin(stamp);
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) hopper::barrier_init(&full[s], 1);
        hopper::barrier_init_visible();
        hopper::shared_visible_to_async();
        auto load = [&](int turn) {
            int box = blockIdx.x + turn * gridDim.x, s = turn % stages;
            if (box >= boxes) return;
            hopper::barrier_expect(&full[s], box_bytes);
            hopper::tma_load(tiles + s * box_bytes, &from, &full[s], 0, box * rows);
        };
        for (int turn = 0; turn < stages - 1; ++turn) load(turn);
        for (int turn = 0; blockIdx.x + turn * gridDim.x < boxes; ++turn) {
            int s = turn % stages;
            hopper::barrier_wait(&full[s], turn / stages % 2);
            if (store) {
                hopper::tma_store(&to, tiles + s * box_bytes, 0, (blockIdx.x + turn * gridDim.x) * rows);
                hopper::tma_store_commit();
                hopper::tma_store_wait<1>();  // the turn before this one has left its place
            }
            load(turn + stages - 1);  // into that place
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    end(stamp, stamps);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    auto key = seed(args);
    args.done();
    Bench bench;
    size_t free_bytes = 0, total = 0;
    CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total));
    size_t bytes = size_t(1) << 30;
    while (bytes > free_bytes / 3) bytes /= 2;
    auto* in = device_alloc<float>(bytes / 4);
    auto* out = device_alloc<float>(bytes / 4);
    fill_uniform(in, bytes / 4, key, -1, 1);
    wake(bench, 100);
    // Correct first: one copy, compared on a sample.
    const size_t all_rows = bytes / kRowBytes;
    auto map = [&](const float* data, int rows) {
        return hopper::matrix_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data, all_rows, 32, unsigned(rows), 32, hopper::Swizzle::none);
    };
    const int most = int(bench.properties.sharedMemPerMultiprocessor) - 1024 * 8;
    CHECK_CUDA(cudaFuncSetAttribute(copy, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bench.properties.sharedMemPerBlockOptin) - 1024));
    for (int rows : {8, 32, 64, 128, 256})
        for (int per_sm : {1, 2, 4}) {
            const int room = std::min(most / per_sm - 2048, int(bench.properties.sharedMemPerBlockOptin) - 2048);
            const int stages = std::min(kMostStages, room / (rows * kRowBytes));
            if (stages < 2) continue;
            const int shared = stages * rows * kRowBytes + 1024, blocks = bench.sms() * per_sm, boxes = int(all_rows / rows);
            CUtensorMap from = map(in, rows), to = map(out, rows);
            poison(out, bytes);
            const std::string of = std::to_string(rows * kRowBytes) + "B:" + std::to_string(per_sm) + "cta";
            for (int store : {0, 1})
                rate(bench, std::string("tma:") + (store ? "copy:" : "read:") + of, "byte/s", double(bytes) * (1 + store), blocks,
                     [&](Stamp* s) { copy<<<blocks, 32, shared>>>(from, to, rows, boxes, stages, store, s); });
            const size_t sample = size_t(1) << 20;
            for (size_t first : {size_t(0), bytes / 8 / 32 * 32, bytes / 4 - sample}) {
                std::vector<float> a = to_host(in + first, sample), b = to_host(out + first, sample);
                require(std::memcmp(a.data(), b.data(), sample * 4) == 0, "the copy by TMA of boxes of " + of + " differs");
            }
        }
    return 0;
}
