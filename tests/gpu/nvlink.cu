// Reads another GPU's memory over the link and keeps a sum, so that `diagnose` can be checked against traffic that is known:
// every word of `n` on the peer is read once a launch. `tests/gpu/nvlink.sh` runs it on a machine with two GPUs.
//
//     nvcc -O3 -lineinfo -arch=sm_90 -o nvlink nvlink.cu && ./nvlink [MEBIBYTES]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#define CHECK(call)                                                                            \
    do {                                                                                       \
        cudaError_t error = (call);                                                            \
        if (error != cudaSuccess) {                                                            \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                \
            return 2;                                                                          \
        }                                                                                      \
    } while (0)

constexpr int kThreads = 256, kBlocks = 132 * 8;  // every SM of an H200 full

__global__ void read_peer(const uint4* peer, size_t vectors, unsigned long long* sum) {
    unsigned long long own = 0;
    for (size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x; i < vectors; i += size_t(gridDim.x) * kThreads) {
        uint4 v = peer[i];
        own += v.x + (unsigned long long)v.y + v.z + v.w;
    }
    atomicAdd(sum, own);
}

int main(int argc, char** argv) {
    size_t bytes = (argc > 1 ? size_t(std::atoll(argv[1])) : 1024) << 20;
    if (bytes == 0 || bytes > (size_t(64) << 30)) {
        std::fprintf(stderr, "MEBIBYTES must be between 1 and 65536\n");
        return 2;
    }
    int devices = 0, reachable = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        std::fprintf(stderr, "needs two GPUs, %d here\n", devices);
        return 3;
    }
    CHECK(cudaDeviceCanAccessPeer(&reachable, 0, 1));
    if (!reachable) {
        std::fprintf(stderr, "GPU 0 cannot read the memory of GPU 1\n");
        return 3;
    }
    std::vector<unsigned> words(bytes / sizeof(unsigned));
    std::mt19937 random(std::random_device{}());
    unsigned long long expected = 0;
    for (unsigned& word : words) expected += word = random();

    void* peer = nullptr;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&peer, bytes));
    CHECK(cudaMemcpy(peer, words.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    unsigned long long *sum = nullptr, found = 0;
    CHECK(cudaMalloc(&sum, sizeof(*sum)));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    float best = 0;
    for (int run = 0; run < 5; ++run) {
        CHECK(cudaMemset(sum, 0, sizeof(*sum)));
        CHECK(cudaEventRecord(start));
        read_peer<<<kBlocks, kThreads>>>(static_cast<const uint4*>(peer), bytes / sizeof(uint4), sum);
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaMemcpy(&found, sum, sizeof(found), cudaMemcpyDeviceToHost));
        float ms = 0;
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        if (found != expected) {
            std::fprintf(stderr, "sum %llu, expected %llu\n", found, expected);
            return 1;
        }
        if (run > 0 && (best == 0 || ms < best)) best = ms;
    }
    std::printf("read %zu MiB of the peer: %.1f GB/s\n", bytes >> 20, double(bytes) / best / 1e6);
    return 0;
}
