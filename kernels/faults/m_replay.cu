// Prioritised experience replay: new priorities from the temporal-difference errors. --layout: records (the priority is a field
// of a 32-byte record) or plain (an array of its own).
#include "h_harness.cuh"

struct alignas(32) Record {
    float priority, reward, discount, terminal, value, advantage, log_probability, weight;
};

__global__ void __launch_bounds__(256) update_priorities(const float* __restrict__ error, Record* __restrict__ records, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) records[i].priority = sqrtf(fabsf(error[i]) + 1e-3f);
}

__device__ __forceinline__ float priority(float error) { return sqrtf(fabsf(error) + 1e-3f); }

__global__ void __launch_bounds__(256) update_priority_array(const float4* __restrict__ error, float4* __restrict__ priorities, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 e = error[i];
    priorities[i] = make_float4(priority(e.x), priority(e.y), priority(e.z), priority(e.w));
}

struct Reference {
    const float *error, *before;
    int width;
    __device__ double operator()(size_t i) const {
        return i % width ? double(before[i]) : sqrt(fabs(double(error[i / width])) + 1e-3);
    }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    std::string layout = args.get_str("layout", "records");
    require(layout == "records" || layout == "plain", "--layout must be records or plain, got " + layout);
    int n = positive(args, "n", 33554432, 1 << 28), width = layout == "records" ? 8 : 1;
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 4 == 0, "--n must be a multiple of 4");
    size_t words = size_t(n) * width;
    float *error = device_alloc<float>(n), *store = device_alloc<float>(words), *before = device_alloc<float>(words);
    fill_uniform(error, n, key, -2.0f, 2.0f);
    fill_uniform(before, words, key + 1, -1.0f, 1.0f);
    CHECK_CUDA(cudaMemcpy(store, before, words * sizeof(float), cudaMemcpyDeviceToDevice));
    auto launch = [&] {
        if (layout == "records")
            update_priorities<<<blocks_for(n, 256), 256>>>(error, reinterpret_cast<Record*>(store), n);
        else
            update_priority_array<<<blocks_for(n / 4, 256), 256>>>(reinterpret_cast<float4*>(error), reinterpret_cast<float4*>(store), n / 4);
    };
    launch_once(launch);
    double difference = device_error(store, words, Reference{error, before, width});
    return report("faults/m-replay", median_us(launch, reps), 0, 8.0 * n, difference, 1e-6);
}
