// Sum, least, greatest and number of the values of each of 4096 groups. `fault` guards a group's record with a lock that a thread
// polls, `fix` has an atomic operation for each of the four.
#include "h_harness.cuh"

constexpr int kBlock = 256;

struct Record {
    double sum;
    unsigned least, greatest;  // bits of a positive float keep its order
};

__global__ void __launch_bounds__(kBlock) group_locked(const int* __restrict__ group, const float* __restrict__ value, Record* record,
                                                       int* number, int* lock, int rows) {
    for (int i = blockIdx.x * kBlock + threadIdx.x; i < rows; i += gridDim.x * kBlock) {
        int g = group[i];
        float v = value[i];
        // A lane that holds the lock leaves it in the same turn: its neighbours may wait for it.
        for (bool done = false; !done;) {
            if (atomicCAS(lock + g, 0, 1) == 0) {
                __threadfence();
                volatile Record* r = record + g;
                volatile int* n = number + g;
                r->sum = r->sum + double(v);
                unsigned bits = __float_as_uint(v);
                if (bits < r->least) r->least = bits;
                if (bits > r->greatest) r->greatest = bits;
                *n = *n + 1;
                __threadfence();
                atomicExch(lock + g, 0);
                done = true;
            } else {
                __nanosleep(100);
            }
        }
    }
}

__global__ void __launch_bounds__(kBlock) group_atomics(const int* __restrict__ group, const float* __restrict__ value, Record* record,
                                                        int* number, int rows) {
    for (int i = blockIdx.x * kBlock + threadIdx.x; i < rows; i += gridDim.x * kBlock) {
        int g = group[i];
        float v = value[i];
        atomicAdd(&record[g].sum, double(v));
        atomicMin(&record[g].least, __float_as_uint(v));
        atomicMax(&record[g].greatest, __float_as_uint(v));
        atomicAdd(number + g, 1);
    }
}

__global__ void clear_groups(Record* record, int* number, int* lock, int groups) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    record[g] = {0.0, 0x7f800000u, 0u};
    number[g] = lock[g] = 0;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int rows = positive(args, "rows", 1048576, 1 << 26), groups = positive(args, "groups", 4096, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int *group = device_alloc<int>(rows), *number = device_alloc<int>(groups), *lock = device_alloc<int>(groups);
    float* value = device_alloc<float>(rows);
    Record* record = device_alloc<Record>(groups);
    fill_uniform(group, rows, key, 0.0f, float(groups));
    fill_uniform(value, rows, key + 1, 0.5f, 1000.0f);
    auto launch = [&] {
        clear_groups<<<blocks_for(groups, 256), 256>>>(record, number, lock, groups);
        if (fix) group_atomics<<<264, kBlock>>>(group, value, record, number, rows);
        else group_locked<<<264, kBlock>>>(group, value, record, number, lock, rows);
    };
    launch_once(launch);
    std::vector<Record> want(groups, Record{0.0, 0x7f800000u, 0u}), got = to_host(record, groups);
    std::vector<int> count(groups), counted = to_host(number, groups);
    auto hg = to_host(group, rows);
    auto hv = to_host(value, rows);
    for (int i = 0; i < rows; ++i) {
        Record& r = want[hg[i]];
        unsigned bits;
        std::memcpy(&bits, &hv[i], 4);
        r = {r.sum + hv[i], std::min(r.least, bits), std::max(r.greatest, bits)};
        ++count[hg[i]];
    }
    double error = 0;
    for (int g = 0; g < groups; ++g) {
        bool same = got[g].least == want[g].least && got[g].greatest == want[g].greatest && counted[g] == count[g];
        double e = same ? std::fabs(got[g].sum - want[g].sum) / std::max(1.0, want[g].sum) : INFINITY;
        error = e <= error ? error : e;
    }
    return report("faults/n-lock", median_us(launch, reps), 0, 8.0 * rows, error, 1e-9);
}
