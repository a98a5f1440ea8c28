// A late round of shortest paths over the links of a web crawl: most links lead to a page near by, a quarter to one of 64 popular pages. Links
// that have closed are skipped; distance and predecessor of a page are one 64-bit word, of which the smallest wins. --variant fault: each link
// is an atomic minimum; fix: only where the distance there, as a plain load sees it, is larger (an old value is never too small).
#include "h_harness.cuh"

constexpr int kDegree = 32, kPopular = 64, kThreads = 256;

struct Links {
    const int4 *from, *to, *length, *closed;  // four links an element, by `from`
};

struct Pages {
    const unsigned* settled;    // distances after the round before
    unsigned long long* best;  // distance << 32 | predecessor
};

__host__ __device__ inline unsigned long long offer(unsigned settled, int length, int from) {
    return (unsigned long long)(settled + unsigned(length)) << 32 | unsigned(from);
}

template <bool LOOK>
__device__ __forceinline__ void relax(const Pages& pages, int from, int to, int length, int closed, int now) {
    if (closed <= now) return;
    unsigned long long mine = offer(__ldg(pages.settled + from), length, from);
    if (LOOK && pages.best[to] <= mine) return;
    atomicMin(pages.best + to, mine);
}

template <bool LOOK>
__device__ __forceinline__ void relax_all(const Links& links, const Pages& pages, size_t quads, int now) {
    for (size_t q = size_t(blockIdx.x) * kThreads + threadIdx.x; q < quads; q += size_t(gridDim.x) * kThreads) {
        int4 from = __ldcs(links.from + q), to = __ldcs(links.to + q), length = __ldcs(links.length + q), closed = __ldcs(links.closed + q);
        relax<LOOK>(pages, from.x, to.x, length.x, closed.x, now);
        relax<LOOK>(pages, from.y, to.y, length.y, closed.y, now);
        relax<LOOK>(pages, from.z, to.z, length.z, closed.z, now);
        relax<LOOK>(pages, from.w, to.w, length.w, closed.w, now);
    }
}

__global__ void __launch_bounds__(kThreads) relax_always(Links links, Pages pages, size_t quads, int now) {
    relax_all<false>(links, pages, quads, now);
}

__global__ void __launch_bounds__(kThreads) relax_if_nearer(Links links, Pages pages, size_t quads, int now) {
    relax_all<true>(links, pages, quads, now);
}

// Link i leaves page i / 32. The popular page of rank k is chosen about as often as 1 / (k + 1).
__global__ void crawl(int* from, int* to, int* length, int* closed, int links, int pages, unsigned long long key) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < links; i += gridDim.x * blockDim.x) {
        unsigned long long r = diagnose_hash(key + i), s = diagnose_hash(r);
        int page = i / kDegree;
        from[i] = page;
        if (r % 4 == 0) {
            int rank = min(kPopular - 1, int(exp2f(6.0f * (unsigned(s >> 40) * 0x1p-24f))) - 1);
            to[i] = int((rank + 1) * 2654435761ull % unsigned(pages));
        } else {
            to[i] = min(pages - 1, max(0, page + int(r >> 8 & 63) - 32));
        }
        // Distances are below 2^19, so that few links are a shorter way.
        length[i] = (1 << 18) + int((r >> 16) % (3 << 18));
        closed[i] = int(s & 0xffff);
    }
}

__global__ void start(const unsigned* settled, unsigned long long* best, int pages) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pages; i += gridDim.x * blockDim.x) best[i] = offer(settled[i], 0, i);
}

int main(int argc, char** argv) {
    Args args(argc, argv);
    bool fix = want_fix(args);
    int pages = positive(args, "pages", 2097152, 1 << 24);
    int reps = repeats(args);
    unsigned long long key = seed(args);
    args.done();
    const int links = pages * kDegree, now = 3277;  // one link in twenty has closed
    int *from = device_alloc<int>(links), *to = device_alloc<int>(links), *length = device_alloc<int>(links), *closed = device_alloc<int>(links);
    unsigned* settled = device_alloc<unsigned>(pages);
    auto *first = device_alloc<unsigned long long>(pages), *best = device_alloc<unsigned long long>(pages);
    fill_uniform(settled, pages, key, 0.0f, 524288.0f);
    crawl<<<2048, 256>>>(from, to, length, closed, links, pages, diagnose_hash(key + 1));
    start<<<2048, 256>>>(settled, first, pages);
    CHECK_CUDA(cudaGetLastError());
    auto four = [](int* p) { return reinterpret_cast<int4*>(p); };
    auto launch = [&] {
        CHECK_CUDA(cudaMemcpyAsync(best, first, size_t(pages) * 8, cudaMemcpyDeviceToDevice));
        auto kernel = fix ? relax_if_nearer : relax_always;
        kernel<<<1056, kThreads>>>({four(from), four(to), four(length), four(closed)}, {settled, best}, size_t(links) / 4, now);
    };
    launch_once(launch);
    auto hs = to_host(settled, pages);
    auto want = to_host(first, pages), got = to_host(best, pages);
    auto ht = to_host(to, links), hl = to_host(length, links), hc = to_host(closed, links);
    for (int i = 0; i < links; ++i)
        if (hc[i] > now) want[ht[i]] = std::min(want[ht[i]], offer(hs[i / kDegree], hl[i], i / kDegree));
    size_t wrong = 0;
    for (int i = 0; i < pages; ++i) wrong += got[i] != want[i];
    return report("faults/s-relax", median_us(launch, reps), 0, 16.0 * links, double(wrong), 0);
}
