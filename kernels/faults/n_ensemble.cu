// An ensemble of Lorenz-96-like columns: 16896 sites, eight members each, stepped by Heun's rule. One block of 128 an SM is all the
// sites give. `fault` carries one member after another through time, `fix` all eight together.
#include "h_harness.cuh"

constexpr int kMembers = 8, kBlock = 128;

template <class T>
struct State {
    T x, y;
};

struct Model {
    float forcing, damping, coupling, step;
};

template <class T>
__device__ __forceinline__ State<T> slope(const State<T>& s, const Model& m) {
    return {T(m.forcing) - s.x * (T(m.damping) + T(m.coupling) * s.y * s.y), s.x * T(m.coupling) - s.y * (T(m.damping) + s.x * s.x)};
}

template <class T>
__device__ __forceinline__ void heun(State<T>& s, const Model& m) {
    T h = T(m.step), half = T(0.5) * h;
    State<T> k1 = slope(s, m), trial{s.x + h * k1.x, s.y + h * k1.y}, k2 = slope(trial, m);
    s.x += half * (k1.x + k2.x);
    s.y += half * (k1.y + k2.y);
}

__global__ void __launch_bounds__(kBlock) members_in_turn(const float2* __restrict__ start, float2* __restrict__ end, int sites, int steps,
                                                          Model model) {
    int site = blockIdx.x * kBlock + threadIdx.x;
    if (site >= sites) return;
#pragma unroll 1
    for (int e = 0; e < kMembers; ++e) {
        float2 v = start[size_t(e) * sites + site];
        State<float> s{v.x, v.y};
        for (int t = 0; t < steps; ++t) heun(s, model);
        end[size_t(e) * sites + site] = make_float2(s.x, s.y);
    }
}

__global__ void __launch_bounds__(kBlock) members_together(const float2* __restrict__ start, float2* __restrict__ end, int sites, int steps,
                                                           Model model) {
    int site = blockIdx.x * kBlock + threadIdx.x;
    if (site >= sites) return;
    State<float> s[kMembers];
#pragma unroll
    for (int e = 0; e < kMembers; ++e) {
        float2 v = start[size_t(e) * sites + site];
        s[e] = {v.x, v.y};
    }
    for (int t = 0; t < steps; ++t) {
#pragma unroll
        for (int e = 0; e < kMembers; ++e) heun(s[e], model);
    }
#pragma unroll
    for (int e = 0; e < kMembers; ++e) end[size_t(e) * sites + site] = make_float2(s[e].x, s[e].y);
}

__global__ void reference_members(const float2* start, double2* end, int n, int steps, Model model) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    State<double> s{start[i].x, start[i].y};
    for (int t = 0; t < steps; ++t) heun(s, model);
    end[i] = make_double2(s.x, s.y);
}

struct Reference {
    const double* end;
    __device__ double operator()(size_t i) const { return end[i]; }
};

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int sites = positive(args, "sites", 16896, 1 << 24), steps = positive(args, "steps", 1500, 1 << 20);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    int n = sites * kMembers;
    float2 *start = device_alloc<float2>(n), *end = device_alloc<float2>(n);
    double2* ref = device_alloc<double2>(n);
    fill_uniform(reinterpret_cast<float*>(start), size_t(n) * 2, key, 0.1f, 1.0f);
    poison(end, size_t(n) * sizeof(float2));
    Model model{1.25f, 0.5f, 0.75f, 0.0009765625f};
    unsigned blocks = blocks_for(sites, kBlock);
    auto launch = [&] {
        if (fix) members_together<<<blocks, kBlock>>>(start, end, sites, steps, model);
        else members_in_turn<<<blocks, kBlock>>>(start, end, sites, steps, model);
    };
    launch_once(launch);
    reference_members<<<blocks_for(n, 128), 128>>>(start, ref, n, steps, model);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    double error = device_error(reinterpret_cast<float*>(end), size_t(n) * 2, Reference{reinterpret_cast<double*>(ref)});
    return report("faults/n-ensemble", median_us(launch, reps), 40.0 * n * steps, 0, error, 1e-4);
}
