// A program of several ranks: `ranks N` forks N of them before CUDA starts; without N it is the rank that its launcher names.
// Each adds 1 to random numbers `rounds` times over; rank 1 does twice the rounds. Used by tests/gpu/launchers.py.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int kCount = 1 << 24, kThreads = 256, kRounds = 8;

__global__ void add_rounds(volatile float* x, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int r = 0; r < rounds; ++r) x[i] = x[i] + 1.0f;
}

static int run(int rank) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 2;
    cudaSetDevice(rank % devices);
    int rounds = kRounds * (rank == 1 ? 2 : 1);
    std::mt19937 random(std::random_device{}());
    std::vector<float> before(kCount), after(kCount);
    for (float& value : before) value = float(random() % 1000);
    float* x = nullptr;
    if (cudaMalloc(&x, kCount * sizeof(float)) != cudaSuccess) return 2;
    cudaMemcpy(x, before.data(), kCount * sizeof(float), cudaMemcpyHostToDevice);
    add_rounds<<<kCount / kThreads, kThreads>>>(x, rounds);
    cudaMemcpy(after.data(), x, kCount * sizeof(float), cudaMemcpyDeviceToHost);
    long wrong = 0;
    for (int i = 0; i < kCount; ++i) wrong += after[i] != before[i] + float(rounds);
    std::printf("rank %d, process %d, GPU %d: %ld wrong (%s)\n", rank, int(getpid()), rank % devices, wrong,
                cudaGetErrorString(cudaGetLastError()));
    std::fflush(stdout);
    return wrong ? 1 : 0;
}

int main(int argc, char** argv) {
    if (argc < 2) {
        const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
        if (!rank) rank = std::getenv("RANK");
        return run(rank ? std::atoi(rank) : 0);
    }
    int failed = 0;
    for (int rank = 0; rank < std::atoi(argv[1]); ++rank) {
        if (fork() == 0) _exit(run(rank));
    }
    for (int status = 0; wait(&status) > 0;) failed |= status;
    return failed ? 1 : 0;
}
