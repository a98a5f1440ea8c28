// Sum of n floats by CUB, the library of the toolkit: what the ladder is measured against. Its first kernel,
// DeviceReduceKernel, reads the input; a second one adds up the sums of the blocks.
// diagnose: expect hbm-bandwidth
#include <cub/device/device_reduce.cuh>

#include "check.cuh"

int main(int argc, char** argv) {
    Args args(argc, argv);
    size_t n = reduction_size(args, 1ll << 28);
    int runs = repeats(args);
    auto key = seed(args);
    args.done();

    float* in = device_alloc<float>(n);
    float* out = device_alloc<float>(1);
    fill_uniform(in, n, key, -1, 1);
    poison(out, sizeof(float));
    size_t bytes = 0;
    CHECK_CUDA(cub::DeviceReduce::Sum(nullptr, bytes, in, out, n));
    auto* scratch = device_alloc<unsigned char>(bytes);
    auto launch = [&] { CHECK_CUDA(cub::DeviceReduce::Sum(scratch, bytes, in, out, n)); };
    launch();
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = sum_error(in, n, to_host(out, 1)[0]);
    return report("reduction/cub", median_us(launch, runs), 0, 4.0 * n, error, 1e-5);
}
