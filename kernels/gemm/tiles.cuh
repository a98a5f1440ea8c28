// What the persistent steps of the GEMM ladder share: the order of tiles, and the way out of the outputs.
#pragma once

#include "ring.cuh"

constexpr int kChunkBytes = 64 * 64 * 2;  // outputs leave in chunks of 64 x 64

// Bands of `band` cluster tiles (2 x 128 rows), column by column within a band: 66 clusters then cover about band x 66 / band tiles.
struct Order {
    int rows, columns, band;
    __device__ __forceinline__ void place(int tile, int& row, int& column) const {
        int first = tile / (band * columns) * band, height = min(band, rows - first), inside = tile - first * columns;
        row = first + inside % height;
        column = inside / height;
    }
};

// A warpgroup's 64 x kN outputs through the copy engine, from `Buffers` chunks of shared memory. Nobody waits for the last ones.
template <int Buffers>
__device__ __forceinline__ void store_by_tma(const float (&sum)[kN / 2], uint32_t buffers, const CUtensorMap* map_c, int n0, int m0,
                                             int group, int thread) {
    int lane = thread % 32, line = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int chunk = 0; chunk < kN / 64; ++chunk) {
        uint32_t buffer = buffers + chunk % Buffers * kChunkBytes;
        if (thread == 0) hopper::tma_store_wait<Buffers - 1>();  // the last store from this buffer has left it
        hopper::named_barrier(1 + group, 128);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float* d = sum + chunk * 32 + j * 8;
            hopper::stmatrix(buffer + line * 128 + ((2 * j + lane / 16) ^ (line % 8)) * 16, pack_bf16(d[0], d[1]),
                             pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7]));
        }
        hopper::shared_visible_to_async();
        hopper::named_barrier(1 + group, 128);
        if (thread == 0) {
            hopper::tma_store(map_c, buffer, n0 + chunk * 64, m0);
            hopper::tma_store_commit();
        }
    }
}
