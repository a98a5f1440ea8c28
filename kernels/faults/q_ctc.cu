// Loss of connectionist temporal classification: the forward recursion over a sequence's frames, a block a sequence and a thread a
// state (blank, label, blank, …), as the logarithm of a sum of up to three exponentials. Only the loss is kept.
// `fault`: the row of the last frame lies in a workspace in global memory, and each frame's log-probability is looked up when it is needed;
// `fix`: the row lies in shared memory, and the log-probabilities are asked for eight frames before.
#include "h_harness.cuh"

constexpr int kThreads = 416, kAhead = 8;

struct Batch {
    int frames, sequences, symbols, labels;  // labels: the most of one sequence; 2 * labels + 1 states
};

__device__ __forceinline__ float log_sum3(float a, float b, float c) {
    float top = fmaxf(a, fmaxf(b, c));
    if (top == -INFINITY) return -INFINITY;
    return top + __logf(__expf(a - top) + __expf(b - top) + __expf(c - top));
}

// What a thread knows of its state.
struct State {
    int symbol;
    bool live, step, skip;  // skip: may come from two states before

    __device__ State(const int* targets, int length, int s) {
        live = s < 2 * length + 1;
        symbol = live && s % 2 ? targets[s / 2] : 0;
        step = s > 0;
        skip = live && s % 2 && s >= 3 && symbol != targets[s / 2 - 1];
    }
};

__global__ void __launch_bounds__(kThreads) ctc_forward(const float* __restrict__ logs, const int* __restrict__ targets,
                                                        const int* __restrict__ lengths, const int* __restrict__ frames, float* rows,
                                                        float* __restrict__ loss, Batch batch) {
    int b = blockIdx.x, s = threadIdx.x, length = lengths[b], last = frames[b] - 1, width = 2 * batch.labels + 1;
    State state(targets + size_t(b) * batch.labels, length, s);
    const float* emit = logs + size_t(b) * batch.symbols + state.symbol;
    const size_t frame = size_t(batch.sequences) * batch.symbols, half = size_t(batch.sequences) * width;
    float* row = rows + size_t(b) * width;
    if (s < width) row[s] = state.live && s < 2 ? *emit : -INFINITY;
    for (int t = 1; t <= last; ++t) {
        __syncthreads();
        const float* from = row + (t + 1) % 2 * half;
        if (s < width) {
            float stay = from[s], step = state.step ? from[s - 1] : -INFINITY, skip = state.skip ? from[s - 2] : -INFINITY;
            row[t % 2 * half + s] = state.live ? log_sum3(stay, step, skip) + emit[t * frame] : -INFINITY;
        }
    }
    __syncthreads();
    if (s == 0) {
        const float* end = row + last % 2 * half + 2 * length;
        loss[b] = -log_sum3(end[0], end[-1], -INFINITY);
    }
}

__global__ void __launch_bounds__(kThreads) ctc_forward_shared(const float* __restrict__ logs, const int* __restrict__ targets,
                                                               const int* __restrict__ lengths, const int* __restrict__ frames,
                                                               float* __restrict__ loss, Batch batch) {
    __shared__ float rows[2][kThreads];
    int b = blockIdx.x, s = threadIdx.x, length = lengths[b], last = frames[b] - 1;
    State state(targets + size_t(b) * batch.labels, length, s);
    const float* emit = logs + size_t(b) * batch.symbols + state.symbol;
    const size_t frame = size_t(batch.sequences) * batch.symbols;
    rows[0][s] = state.live && s < 2 ? *emit : -INFINITY;
    auto advance = [&](const float* from, float* to, float now) {
        __syncthreads();
        float stay = from[s], step = state.step ? from[s - 1] : -INFINITY, skip = state.skip ? from[s - 2] : -INFINITY;
        to[s] = state.live ? log_sum3(stay, step, skip) + now : -INFINITY;
    };
    // `logs` has kAhead frames more than anyone needs, which saves a test.
    float ready[kAhead];
    const float* next = emit + frame;
#pragma unroll
    for (int i = 0; i < kAhead; ++i, next += frame) ready[i] = *next;
    int t = 1;
    for (; t + kAhead <= last + 1; t += kAhead) {
        float coming[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i, next += frame) coming[i] = *next;
#pragma unroll
        for (int i = 0; i < kAhead; ++i) advance(rows[i % 2], rows[(i + 1) % 2], ready[i]);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) ready[i] = coming[i];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i)  // fewer than kAhead frames are left
        if (t + i <= last) advance(rows[i % 2], rows[(i + 1) % 2], ready[i]);
    __syncthreads();
    if (s == 0) {
        const float* end = rows[last % 2] + 2 * length;
        loss[b] = -log_sum3(end[0], end[-1], -INFINITY);
    }
}

// The same recursion in double and in probabilities, scaled to the sum 1 after each frame.
__global__ void ctc_reference(const float* logs, const int* targets, const int* lengths, const int* frames, double* loss, Batch batch) {
    __shared__ double rows[2][kThreads], total;
    int b = blockIdx.x, s = threadIdx.x, length = lengths[b];
    State state(targets + size_t(b) * batch.labels, length, s);
    double scale = 0;
    for (int t = 0; t < frames[b]; ++t) {
        double p = 0;
        if (state.live) {
            const double* from = rows[(t + 1) % 2];
            if (t == 0) p = s < 2;
            else p = from[s] + (state.step ? from[s - 1] : 0.0) + (state.skip ? from[s - 2] : 0.0);
            p *= exp(double(logs[(size_t(t) * batch.sequences + b) * batch.symbols + state.symbol]));
        }
        rows[t % 2][s] = p;
        __syncthreads();
        if (t % 16 == 15 || t + 1 == frames[b]) {
            if (s == 0) {
                total = 0;
                for (int i = 0; i < kThreads; ++i) total += rows[t % 2][i];
            }
            __syncthreads();
            scale += log(total);
            rows[t % 2][s] /= total;
            __syncthreads();
        }
    }
    const double* end = rows[(frames[b] - 1) % 2] + 2 * length;
    if (s == 0) loss[b] = -(log(end[0] + end[-1]) + scale);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    Batch batch;
    batch.sequences = positive(args, "sequences", 132, 1 << 14);
    batch.frames = positive(args, "frames", 1600, 1 << 16);
    batch.symbols = positive(args, "symbols", 128, 1 << 16);
    batch.labels = positive(args, "labels", 200, (kThreads - 1) / 2);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(batch.frames >= 2 * batch.labels + 32 && batch.symbols >= 2 && batch.labels >= 32, "too few frames, symbols or labels");
    size_t n = size_t(batch.frames + kAhead) * batch.sequences * batch.symbols, width = 2 * size_t(batch.labels) + 1;
    require(n <= (size_t(1) << 30), "too many log-probabilities");
    std::vector<int> targets(size_t(batch.sequences) * batch.labels), lengths(batch.sequences), frames(batch.sequences);
    std::mt19937_64 random(key);
    for (int& symbol : targets) symbol = 1 + int(random() % (batch.symbols - 1));  // 0 is the blank
    for (int& length : lengths) length = batch.labels - int(random() % 16);
    for (int& count : frames) count = batch.frames - int(random() % 32);
    float *logs = device_alloc<float>(n), *rows = device_alloc<float>(2 * batch.sequences * width), *loss = device_alloc<float>(batch.sequences);
    int *device_targets = device_alloc<int>(targets.size()), *device_lengths = device_alloc<int>(lengths.size());
    int* device_frames = device_alloc<int>(frames.size());
    double* ref = device_alloc<double>(batch.sequences);
    CHECK_CUDA(cudaMemcpy(device_targets, targets.data(), targets.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_lengths, lengths.data(), lengths.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device_frames, frames.data(), frames.size() * sizeof(int), cudaMemcpyHostToDevice));
    fill_uniform(logs, n, key, -9.0f, -1.0f);
    poison(rows, 2 * batch.sequences * width * sizeof(float));
    poison(loss, batch.sequences * sizeof(float));
    auto launch = [&] {
        if (fix) ctc_forward_shared<<<batch.sequences, kThreads>>>(logs, device_targets, device_lengths, device_frames, loss, batch);
        else ctc_forward<<<batch.sequences, kThreads>>>(logs, device_targets, device_lengths, device_frames, rows, loss, batch);
    };
    launch_once(launch);
    ctc_reference<<<batch.sequences, kThreads>>>(logs, device_targets, device_lengths, device_frames, ref, batch);
    CHECK_CUDA(cudaGetLastError());
    double error = relative_error(to_host(loss, batch.sequences), to_host(ref, batch.sequences));
    return report("faults/q-ctc", median_us(launch, reps), 0, 4.0 * double(n), error, 5e-5);
}
