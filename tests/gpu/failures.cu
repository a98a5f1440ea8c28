// Programs that go wrong under a profiler, one a mode: `failures MODE`. Used by tests/gpu/failures.py.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kCount = 1 << 20, kThreads = 256;

__global__ void add_one(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }
__global__ void trap_now(float* x) {
    if (x[0] >= 0.0f) __trap();
}
__global__ void assert_now(float* x) { assert(x[0] < 0.0f); }
__global__ void write_nowhere(float* x) { x[size_t(1) << 40] = 1.0f; }
__global__ void fill(float* x, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) x[i] = 1.0f;
}
// Waits for a kernel of another stream, which a profiler that runs one kernel at a time never starts.
__global__ void wait_for_peer(volatile int* flag) {
    while (*flag == 0) {}
}
__global__ void release_peer(volatile int* flag) { *flag = 1; }

static float* zeros() {
    float* x = nullptr;
    if (cudaMalloc(&x, kCount * sizeof(float)) != cudaSuccess) return nullptr;
    cudaMemset(x, 0, kCount * sizeof(float));
    return x;
}

static int launch(float* x) {
    add_one<<<kCount / kThreads, kThreads>>>(x);
    cudaError_t status = cudaDeviceSynchronize();
    std::printf("add_one: %s\n", cudaGetErrorString(status));
    std::fflush(stdout);
    return status == cudaSuccess ? 0 : 1;
}

static int report(const char* what) {
    cudaError_t status = cudaDeviceSynchronize();
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    return status == cudaSuccess ? 0 : 1;
}

static int graph(float* x) {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (int i = 0; i < 3; ++i) add_one<<<kCount / kThreads, kThreads, 0, stream>>>(x);
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    cudaStreamEndCapture(stream, &captured);
    cudaGraphInstantiate(&ready, captured, 0);
    cudaGraphLaunch(ready, stream);
    return report("graph");
}

// Writes 85 % of the GPU's memory: no copy of it fits beside it.
static int fill_most() {
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    size_t count = size_t(double(free_bytes) * 0.85) / sizeof(float);
    float* big = nullptr;
    if (cudaMalloc(&big, count * sizeof(float)) != cudaSuccess) return 2;
    fill<<<1024, kThreads>>>(big, count);
    return report("fill");
}

static int child(bool cuda_first) {
    float* x = cuda_first ? zeros() : nullptr;
    pid_t pid = fork();
    if (pid == 0) {
        if (!cuda_first) x = zeros();
        _exit(x ? launch(x) : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    std::printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "";
    auto is = [&](const char* name) { return std::strcmp(mode, name) == 0; };
    if (is("none")) return 0;
    if (is("early")) {
        std::fprintf(stderr, "cannot open weights.bin\n");
        return 3;
    }
    if (is("fork-late")) return child(true);
    if (is("fork-early")) return child(false);
    float* x = zeros();
    if (!x) return 2;
    if (is("graph")) return graph(x);
    if (is("range")) {
        cudaProfilerStart();
        int failed = launch(x);
        cudaProfilerStop();
        return failed;
    }
    if (is("peer")) {
        int* flag = nullptr;
        cudaMalloc(&flag, sizeof(int));
        cudaMemset(flag, 0, sizeof(int));
        launch(x);
        cudaStream_t first, second;
        cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
        wait_for_peer<<<1, 1, 0, first>>>(flag);
        release_peer<<<1, 1, 0, second>>>(flag);
        return report("wait_for_peer");
    }
    if (is("many")) {
        for (int i = 0; i < 100000; ++i) add_one<<<(i % 64) + 1, kThreads>>>(x);
        return report("many");
    }
    if (launch(x)) return 1;
    if (is("exit3")) return 3;
    if (is("abort")) std::abort();
    if (is("segv")) raise(SIGSEGV);
    if (is("killed")) raise(SIGKILL);
    if (is("hang")) {
        for (;;) pause();
    }
    if (is("big")) return fill_most();
    if (is("trap")) {
        trap_now<<<1, 1>>>(x);
        return report("trap_now");
    }
    if (is("assert")) {
        assert_now<<<1, 1>>>(x);
        return report("assert_now");
    }
    if (is("illegal")) {
        write_nowhere<<<1, 1>>>(x);
        return report("write_nowhere");
    }
    if (is("ok")) return 0;
    std::fprintf(stderr, "no mode %s\n", mode);
    return 2;
}
