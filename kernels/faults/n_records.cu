// Energy of the quarters of seismograms of 1024 samples: one warp has the copy engine bring records into a ring in shared memory,
// four of twelve warps add up a quarter each. `fault` has a ring of three records (12 KB on the way at most), `fix` of 21.
// Multiples of the three groups: a slot has one group of readers, which is never two turns ahead of it (a parity tells two turns apart, not three).
#include "../hopper.cuh"
#include "h_harness.cuh"

constexpr int kRecord = 1024, kConsumers = 4, kGroups = 3, kBlock = 32 * (kConsumers * kGroups + 1);

struct Turn {
    int slot = 0, lap = 0;
    __device__ void next(int slots) {
        if (++slot == slots) {
            slot = 0;
            ++lap;
        }
    }
};

template <int kSlots>
struct Ring {
    float* data;
    uint64_t *full, *empty;

    __device__ void setup() {
        if (threadIdx.x == 0) {
            for (int s = 0; s < kSlots; ++s) {
                hopper::barrier_init(full + s, 1);
                hopper::barrier_init(empty + s, kConsumers);
            }
            hopper::barrier_init_visible();
        }
        __syncthreads();
    }
};

template <int kSlots>
__device__ __forceinline__ void produce(const Ring<kSlots>& ring, const float* __restrict__ in, int records) {
    Turn t;
    for (int r = blockIdx.x; r < records; r += gridDim.x, t.next(kSlots)) {
        hopper::barrier_wait(ring.empty + t.slot, unsigned(t.lap & 1) ^ 1u);
        hopper::barrier_expect(ring.full + t.slot, kRecord * sizeof(float));
        hopper::bulk_load(hopper::address(ring.data + t.slot * kRecord), in + size_t(r) * kRecord, kRecord * sizeof(float), ring.full + t.slot);
    }
}

template <int kSlots>
__device__ __forceinline__ void consume(const Ring<kSlots>& ring, float* __restrict__ out, int records, float offset) {
    int warp = threadIdx.x / 32 % kConsumers, group = threadIdx.x / (32 * kConsumers), lane = threadIdx.x % 32;
    Turn t;
    for (int g = 0; g < group; ++g) t.next(kSlots);
    for (int r = blockIdx.x + group * gridDim.x; r < records; r += kGroups * gridDim.x) {
        hopper::barrier_wait(ring.full + t.slot, unsigned(t.lap & 1));
        const float4* quarter = reinterpret_cast<const float4*>(ring.data + t.slot * kRecord + warp * (kRecord / kConsumers));
        float4 a = quarter[lane], b = quarter[lane + 32];
        __syncwarp();
        if (lane == 0) hopper::barrier_arrive(ring.empty + t.slot);
        const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(x[i] - offset, x[i] - offset, sum);
        for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, m);
        if (lane == 0) out[size_t(r) * kConsumers + warp] = sum;
        for (int g = 0; g < kGroups; ++g) t.next(kSlots);
    }
}

template <int kSlots>
__device__ __forceinline__ void energies(const float* __restrict__ in, float* __restrict__ out, int records, float offset) {
    extern __shared__ __align__(128) float data[];
    __shared__ uint64_t full[kSlots], empty[kSlots];
    Ring<kSlots> ring{data, full, empty};
    ring.setup();
    if (threadIdx.x >= 32 * kConsumers * kGroups) {
        if (threadIdx.x % 32 == 0) produce(ring, in, records);
    } else {
        consume(ring, out, records, offset);
    }
}

__global__ void __launch_bounds__(kBlock) energy_few(const float* __restrict__ in, float* __restrict__ out, int records, float offset) {
    energies<3>(in, out, records, offset);
}

__global__ void __launch_bounds__(kBlock) energy_many(const float* __restrict__ in, float* __restrict__ out, int records, float offset) {
    energies<21>(in, out, records, offset);
}

struct Reference {
    const float* in;
    double offset;
    __device__ double operator()(size_t i) const {
        double sum = 0;
        for (int s = 0; s < kRecord / kConsumers; ++s) {
            double v = double(in[i * (kRecord / kConsumers) + s]) - offset;
            sum += v * v;
        }
        return sum;
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int records = positive(args, "records", 202752, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    size_t n = size_t(records) * kRecord, sums = size_t(records) * kConsumers;
    float *in = device_alloc<float>(n), *out = device_alloc<float>(sums);
    fill_uniform(in, n, key, 0.0f, 1.0f);
    poison(out, sums * sizeof(float));
    const float offset = 0.375f;
    const int slot = kRecord * int(sizeof(float));
    CHECK_CUDA(cudaFuncSetAttribute(energy_many, cudaFuncAttributeMaxDynamicSharedMemorySize, 21 * slot));
    auto launch = [&] {
        if (fix) energy_many<<<132, kBlock, 21 * slot>>>(in, out, records, offset);
        else energy_few<<<132, kBlock, 3 * slot>>>(in, out, records, offset);
    };
    launch_once(launch);
    double error = device_error(out, sums, Reference{in, double(offset)});
    return report("faults/n-records", median_us(launch, reps), 0, 4.0 * double(n), error, 1e-4);
}
