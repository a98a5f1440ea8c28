// Heat in small plates, a block a plate: a handful of plates a launch, as they come in, or all in one launch. A sweep needs the
// neighbours of the last one, so that a plate cannot be spread over SMs.
#include "memory.cuh"

constexpr int SIDE = 32, CELLS = SIDE * SIDE, PITCH = SIDE + 2;

// What a cell takes from its neighbours grows with its own heat, which stays below 2: at most 0.2 of each keeps the sum stable.
template <class T>
__host__ __device__ T relax(T u, T left, T right, T up, T down, T source) {
    T share = T(0.1) + T(0.02) * u * u;
    return u + share * ((left + right) + (up + down) - T(4) * u) + source;
}

__global__ void __launch_bounds__(CELLS)
    heat_plates(const float* __restrict__ start, const float* __restrict__ source, float* __restrict__ out, int sweeps) {
    __shared__ float cells[2][PITCH][PITCH];
    int x = threadIdx.x % SIDE + 1, y = threadIdx.x / SIDE + 1, side = 0;
    size_t cell = size_t(blockIdx.x) * CELLS + threadIdx.x;
    for (int i = threadIdx.x; i < 2 * PITCH * PITCH; i += CELLS) (&cells[0][0][0])[i] = 0;  // the rim stays cold
    float u = start[cell], gain = source[cell];
    __syncthreads();
    for (int sweep = 0; sweep < sweeps; ++sweep, side ^= 1) {
        cells[side][y][x] = u;
        __syncthreads();
        u = relax(u, cells[side][y][x - 1], cells[side][y][x + 1], cells[side][y - 1][x], cells[side][y + 1][x], gain);
    }
    out[cell] = u;
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fault = is_fault(args);
    int r = repeats(args);
    auto s = seed(args);
    size_t plates = size_arg(args, "plates", 528), handful = size_arg(args, "handful", 24);
    int sweeps = int(size_arg(args, "sweeps", 96));
    require(plates <= 65535 && handful <= plates, "--plates is at most 65535, --handful at most --plates");
    args.done();
    size_t n = plates * CELLS;
    auto start = device_alloc<float>(n), source = device_alloc<float>(n), out = device_alloc<float>(n);
    fill_uniform(start, n, s, -1, 1);
    fill_uniform(source, n, s + 1, -0.01f, 0.01f);
    poison(out, 4 * n);
    size_t each = fault ? handful : plates;
    auto launch = [&] {
        for (size_t first = 0; first < plates; first += each) {
            size_t at = first * CELLS;
            heat_plates<<<unsigned(std::min(each, plates - first)), CELLS>>>(start + at, source + at, out + at, sweeps);
        }
    };
    run_once(launch);
    auto h = to_host(start, n), gain = to_host(source, n);
    std::vector<double> ref(h.begin(), h.end()), last(PITCH * PITCH);
    for (size_t plate = 0; plate < plates; ++plate) {
        double* u = ref.data() + plate * CELLS;
        const float* add = gain.data() + plate * CELLS;
        for (int sweep = 0; sweep < sweeps; ++sweep) {
            for (int i = 0; i < CELLS; ++i) last[(i / SIDE + 1) * PITCH + i % SIDE + 1] = u[i];
            for (int i = 0; i < CELLS; ++i) {
                const double* at = &last[(i / SIDE + 1) * PITCH + i % SIDE + 1];
                u[i] = relax(at[0], at[-1], at[1], at[-PITCH], at[PITCH], double(add[i]));
            }
        }
    }
    double flops = 11.0 * n * sweeps;
    return report(fault ? "faults/plates-few" : "faults/plates-all", median_us(launch, r), flops, 12.0 * n,
                  relative_error(to_host(out, n), ref), 1e-4);
}
