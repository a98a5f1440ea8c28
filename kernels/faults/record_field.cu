// Scales one field of n records: records of eight floats (one field a sector), or one array a field.
#include "memory.cuh"

struct Record {
    float field[8];
};

__global__ void scale_record_field(const Record* __restrict__ records, float* __restrict__ out, float factor) {
    size_t first = size_t(blockIdx.x) * 1024 + threadIdx.x;
    float value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) value[k] = records[first + k * 256].field[0];
#pragma unroll
    for (int k = 0; k < 4; ++k) out[first + k * 256] = value[k] * factor;
}

__global__ void scale_field_array(const float4* __restrict__ field, float4* __restrict__ out, float factor) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    float4 v = field[i];
    out[i] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

__global__ void pack_records(const float* field, Record* records, size_t n) {
    size_t i = size_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) records[i].field[0] = field[i];
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t n = size_arg(args, "n", 64 << 20, 1024);
    args.done();
    const float factor = 1.5f;
    float *field = device_alloc<float>(n), *out = device_alloc<float>(n);
    Record* records = fault ? device_alloc<Record>(n) : nullptr;
    fill_uniform(field, n, s, -1, 1);
    if (fault) {
        fill_uniform(reinterpret_cast<float*>(records), 8 * n, s + 1, -1, 1);
        pack_records<<<unsigned((n + 255) / 256), 256>>>(field, records, n);
    }
    poison(out, 4 * n);
    auto launch = [&] {
        if (fault) scale_record_field<<<unsigned(n / 1024), 256>>>(records, out, factor);
        else
            scale_field_array<<<unsigned(n / 1024), 256>>>(reinterpret_cast<float4*>(field),
                                                           reinterpret_cast<float4*>(out), factor);
    };
    run_once(launch);
    auto h = to_host(field, n);
    double error = mismatch(out, n, [&](size_t i) { return h[i] * factor; });
    return report(fault ? "faults/record-field" : "faults/field-array", median_us(launch, r), 0, 8.0 * n, error, 0);
}
