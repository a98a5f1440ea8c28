// Particles fly until they are absorbed; sums of their paths. `fault` follows one particle after another, `fix` takes the
// next as soon as a lane is free.
#include "h_harness.cuh"
#include "pair.cuh"

constexpr int kParticles = 64;

__host__ __device__ inline unsigned birth(unsigned id, unsigned key) { return id * 2654435769u ^ key; }
__host__ __device__ inline unsigned next_state(unsigned s) { return s * 747796405u + 2891336453u; }
__host__ __device__ inline unsigned draw(unsigned s) {
    unsigned w = ((s >> ((s >> 28) + 4)) ^ s) * 277803737u;
    return (w >> 22) ^ w;
}
// A flight of 1 to 256 units from the low bits; absorbed when the high four bits are all zero.
__host__ __device__ inline unsigned flight(unsigned r) { return (r & 255u) + 1u; }
__host__ __device__ inline bool absorbed(unsigned r) { return r >> 28 == 0; }

__global__ void __launch_bounds__(256) transport(unsigned long long* __restrict__ paths, unsigned key) {
    unsigned threads = gridDim.x * 256, id = blockIdx.x * 256 + threadIdx.x;
    unsigned long long total = 0;
#pragma unroll 1
    for (int p = 0; p < kParticles; ++p) {
        unsigned s = birth(id + p * threads, key), path = 0, r;
#pragma unroll 1
        do {
            s = next_state(s);
            r = draw(s);
            path += flight(r);
        } while (!absorbed(r));
        total += path;
    }
    paths[id] = total;
}

__global__ void __launch_bounds__(256) transport_refill(unsigned long long* __restrict__ paths, unsigned key) {
    unsigned threads = gridDim.x * 256, id = blockIdx.x * 256 + threadIdx.x, particle = id, path = 0;
    unsigned long long total = 0;
    unsigned last = id + (kParticles - 1) * threads, s = birth(id, key);
#pragma unroll 1
    for (;;) {
        s = next_state(s);
        unsigned r = draw(s);
        path += flight(r);
        if (absorbed(r)) {
            if (particle == last) break;
            particle += threads;
            s = birth(particle, key);
        }
    }
    total = path;
    paths[id] = total;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int n = positive(args, "threads", 270336, 1 << 22);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    require(n % 256 == 0, "--threads must be a multiple of 256");
    unsigned long long* paths = device_alloc<unsigned long long>(n);
    poison(paths, size_t(n) * 8);
    unsigned salt = unsigned(diagnose_hash(key));
    auto kernel = fix ? transport_refill : transport;
    auto launch = [&] { kernel<<<n / 256, 256>>>(paths, salt); };
    launch_once(launch);
    auto wanted = [&](size_t id) {
        unsigned long long total = 0;
        for (int p = 0; p < kParticles; ++p) {
            unsigned s = birth(unsigned(id + size_t(p) * n), salt), r;
            do {
                s = next_state(s);
                r = draw(s);
                total += flight(r);
            } while (!absorbed(r));
        }
        return total;
    };
    double error = sampled_error(to_host(paths, n), wanted, 4000);
    return report("faults/k-burr", median_us(launch, reps), 16.0 * 12 * kParticles * n, 0, error, 0);
}
