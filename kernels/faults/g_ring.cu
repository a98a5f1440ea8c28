// bf16 product on wgmma, 128 x 256 tiles; a producer warp fills a ring of stages with bulk copies of packed operands.
// `fault` has a ring of two stages, `fix` one of six.
#include "g_util.cuh"
#include "wgmma.cuh"

constexpr int kStageK = 32, kABytes = 128 * kStageK * 2, kBBytes = 256 * kStageK * 2;

template <int STAGES>
__global__ void __launch_bounds__(288, 1) ring_product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    extern __shared__ __align__(1024) unsigned char smem[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = k / kStageK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            held::bar_init(&full[i], 1);
            held::bar_init(&empty[i], 8);
        }
        held::bar_init_visible();
    }
    __syncthreads();
    if (warp == 8) {
        if (lane == 0) {
            const char* ga = reinterpret_cast<const char*>(a) + size_t(blockIdx.x) * steps * kABytes;
            const char* gb = reinterpret_cast<const char*>(b) + size_t(blockIdx.y) * steps * kBBytes;
            for (int step = 0; step < steps; ++step) {
                int slot = step % STAGES, round = step / STAGES;
                if (round > 0) held::bar_wait(&empty[slot], (round - 1) & 1);
                unsigned char* to = smem + slot * (kABytes + kBBytes);
                held::bar_expect(&full[slot], kABytes + kBBytes);
                held::bulk_load(to, ga + size_t(step) * kABytes, kABytes, &full[slot]);
                held::bulk_load(to + kABytes, gb + size_t(step) * kBBytes, kBBytes, &full[slot]);
            }
        }
        return;
    }
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0.0f;
    const int group = warp / 4;
    for (int step = 0; step < steps; ++step) {
        int slot = step % STAGES;
        held::bar_wait(&full[slot], (step / STAGES) & 1);
        const unsigned char* at = smem + slot * (kABytes + kBBytes);
        uint64_t da = operand(at + group * 1024, 2048, 128), db = operand(at + kABytes, 4096, 128);
        wgmma_fence();
        wgmma_n256(d, da, db);
        wgmma_n256(d, da + 2 * 2048 / 16, db + 2 * 4096 / 16);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0 && lane == 0) held::bar_arrive(&empty[(step - 1) % STAGES]);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
    size_t row = size_t(blockIdx.x) * 128 + group * 64 + (warp % 4) * 16 + lane / 4;
    float* to = c + row * n + size_t(blockIdx.y) * 256 + (lane % 4) * 2;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(d[4 * j], d[4 * j + 1]);
        *reinterpret_cast<float2*>(to + size_t(8) * n + j * 8) = make_float2(d[4 * j + 2], d[4 * j + 3]);
    }
}

// Where element (row, k) lies: tiles of height x 32, inside them core matrices of 8 x 8, along the rows first.
__device__ inline size_t packed(int row, int k, int height, int total_k) {
    size_t tile = (size_t(row / height) * (total_k / kStageK) + k / kStageK) * height * kStageK;
    int r = row % height, kk = k % kStageK;
    return tile + size_t(kk / 8 * (height / 8) + r / 8) * 64 + r % 8 * 8 + kk % 8;
}

__global__ void reference_packed(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    __shared__ float sa[16][17], sb[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    double sum = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        sa[y][x] = __bfloat162float(a[packed(row, k0 + x, 128, k)]);
        sb[y][x] = __bfloat162float(b[packed(blockIdx.x * 16 + y, k0 + x, 256, k)]);
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += double(sa[y][i]) * double(sb[x][i]);
        __syncthreads();
    }
    c[size_t(row) * n + col] = float(sum);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = held::wants_fix(args);
    int m = int(args.get("m", 4096)), n = int(args.get("n", 4096)), k = int(args.get("k", 4096));
    int reps = repeats(args);
    unsigned long long s = seed(args);
    args.done();
    require(m > 0 && n > 0 && k >= 64 && m <= 32768 && n <= 32768 && k <= 32768, "sizes out of range");
    require(m % 128 == 0 && n % 256 == 0 && k % 32 == 0, "m, n, k must be multiples of 128, 256, 32");
    auto* a = device_alloc<__nv_bfloat16>(size_t(m) * k);
    auto* b = device_alloc<__nv_bfloat16>(size_t(n) * k);
    float* c = device_alloc<float>(size_t(m) * n);
    float* ref = device_alloc<float>(size_t(m) * n);
    fill_uniform(a, size_t(m) * k, s, -1.0f, 1.0f);
    fill_uniform(b, size_t(n) * k, s + 1, -1.0f, 1.0f);
    reference_packed<<<dim3(n / 16, m / 16), dim3(16, 16)>>>(a, b, ref, n, k);
    poison(c, size_t(m) * n * 4);
    held::finish();
    auto kernel = fix ? ring_product<6> : ring_product<2>;
    size_t shared = size_t(fix ? 6 : 2) * (kABytes + kBBytes);
    held::allow_shared(kernel, shared);
    auto launch = [&] { kernel<<<dim3(m / 128, n / 256), 288, shared>>>(a, b, c, n, k); };
    launch();
    held::finish();
    double error = held::device_error(c, ref, size_t(m) * n);
    return report("faults/g-ring", median_us(launch, reps), 2.0 * m * n * k, 0, error, 1e-4);
}
