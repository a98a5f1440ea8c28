// Moves an array through shared memory with bulk copies, a ring of 8 KiB slots a block. `fault` moves 256 bytes a copy,
// `fix` 8 KiB.
#include "g_util.cuh"
using namespace held;

constexpr int kSlot = 8192, kRing = 4;

template <int BOX>
__global__ void __launch_bounds__(32) boxes_move(const unsigned char* in, unsigned char* out, int slots) {
    __shared__ __align__(128) unsigned char ring[kRing][kSlot];
    __shared__ __align__(8) uint64_t full[kRing];
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kRing; ++i) bar_init(&full[i], 1);
    bar_init_visible();
    int count = (slots - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    auto load = [&](int i) {
        const unsigned char* from = in + (size_t(blockIdx.x) + size_t(i) * gridDim.x) * kSlot;
        bar_expect(&full[i % kRing], kSlot);
        for (int b = 0; b < kSlot; b += BOX) bulk_load(&ring[i % kRing][b], from + b, BOX, &full[i % kRing]);
    };
    for (int i = 0; i < kRing - 1 && i < count; ++i) load(i);
    for (int i = 0; i < count; ++i) {
        bar_wait(&full[i % kRing], (i / kRing) & 1);
        unsigned char* to = out + (size_t(blockIdx.x) + size_t(i) * gridDim.x) * kSlot;
        for (int b = 0; b < kSlot; b += BOX) bulk_store(to + b, &ring[i % kRing][b], BOX);
        bulk_commit();
        if (i + kRing - 1 < count) {
            bulk_wait_read<1>();  // the slot of the copy before this one has been read
            load(i + kRing - 1);
        }
    }
    bulk_wait_all();
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = wants_fix(args);
    int slots = int(args.get("slots", 32768));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(slots > 0 && slots <= 262144, "--slots out of range");
    size_t n = size_t(slots) * kSlot;
    unsigned char* in = device_alloc<unsigned char>(n);
    unsigned char* out = device_alloc<unsigned char>(n);
    fill_uniform(in, n, s, 0.f, 1.f);
    poison(out, n);
    int device = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    auto kernel = fix ? boxes_move<kSlot> : boxes_move<256>;
    auto launch = [&] { kernel<<<sms * 4, 32>>>(in, out, slots); };
    launch();
    finish();
    double error = device_error(out, in, n);
    return report("faults/g-boxes", median_us(launch, reps), 0, 2.0 * double(n), error, 0);
}
