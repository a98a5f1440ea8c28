// Revenue a store in cents (64 bit), over rows clustered by store. `fault` adds every row to the block's table in shared memory,
// `fix` adds up a warp first when all its rows belong to one store.
#include "h_harness.cuh"

constexpr int kStores = 512, kBlock = 256;
using Cents = unsigned long long;

struct Table {
    Cents* entry;
    __device__ void add(int store, Cents value) const { atomicAdd(entry + store, value); }
};

template <class Add>
__device__ __forceinline__ void scan_slab(const int4* __restrict__ store, const int4* __restrict__ price, size_t quads, Cents* result,
                                          Add add) {
    __shared__ Cents table[kStores];
    for (int s = threadIdx.x; s < kStores; s += kBlock) table[s] = 0;
    __syncthreads();
    size_t per_block = (quads + gridDim.x - 1) / gridDim.x, begin = per_block * blockIdx.x, end = min(begin + per_block, quads);
    for (size_t base = begin; base < end; base += kBlock) {
        size_t q = base + threadIdx.x;
        bool valid = q < end;
        int4 s = valid ? store[q] : make_int4(0, 0, 0, 0), p = valid ? price[q] : make_int4(0, 0, 0, 0);
        add(Table{table}, s, p, valid);
    }
    __syncthreads();
    for (int s = threadIdx.x; s < kStores; s += kBlock)
        if (table[s]) atomicAdd(result + s, table[s]);
}

struct EachRow {
    __device__ void operator()(Table table, int4 s, int4 p, bool valid) const {
        if (!valid) return;
        table.add(s.x, Cents(p.x));
        table.add(s.y, Cents(p.y));
        table.add(s.z, Cents(p.z));
        table.add(s.w, Cents(p.w));
    }
};

struct EachWarp {
    __device__ void operator()(Table table, int4 s, int4 p, bool valid) const {
        bool one = s.x == s.y && s.x == s.z && s.x == s.w && valid;
        int first = __shfl_sync(0xffffffffu, s.x, 0);
        if (__all_sync(0xffffffffu, one && s.x == first)) {
            Cents sum = Cents(p.x) + Cents(p.y) + Cents(p.z) + Cents(p.w);
            for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, m);
            if (threadIdx.x % 32 == 0) table.add(first, sum);
        } else {
            EachRow{}(table, s, p, valid);
        }
    }
};

__global__ void __launch_bounds__(kBlock) revenue_rows(const int4* __restrict__ store, const int4* __restrict__ price, size_t quads,
                                                       Cents* result) {
    scan_slab(store, price, quads, result, EachRow{});
}

__global__ void __launch_bounds__(kBlock) revenue_warps(const int4* __restrict__ store, const int4* __restrict__ price, size_t quads,
                                                        Cents* result) {
    scan_slab(store, price, quads, result, EachWarp{});
}

__global__ void cluster_stores(int* store, size_t n) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) store[i] = int(i * kStores / n);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 25165824, 1 << 28);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(rows % 4 == 0, "--rows must be a multiple of 4");
    int *store = device_alloc<int>(rows), *price = device_alloc<int>(rows);
    Cents* result = device_alloc<Cents>(kStores);
    cluster_stores<<<1056, 256>>>(store, rows);
    fill_uniform(price, rows, key, 99.0f, 5000000.0f);
    auto launch = [&] {
        CHECK_CUDA(cudaMemsetAsync(result, 0, kStores * sizeof(Cents)));
        auto *s = reinterpret_cast<const int4*>(store), *p = reinterpret_cast<const int4*>(price);
        if (fix) revenue_warps<<<1056, kBlock>>>(s, p, size_t(rows) / 4, result);
        else revenue_rows<<<1056, kBlock>>>(s, p, size_t(rows) / 4, result);
    };
    launch_once(launch);
    std::vector<Cents> want(kStores), got = to_host(result, kStores);
    auto hs = to_host(store, rows), hp = to_host(price, rows);
    for (int i = 0; i < rows; ++i) want[hs[i]] += Cents(hp[i]);
    int wrong = 0;
    for (int s = 0; s < kStores; ++s) wrong += got[s] != want[s];
    return report("faults/n-revenue", median_us(launch, reps), 0, 8.0 * rows, wrong, 0);
}
