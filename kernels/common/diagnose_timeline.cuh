// A time line from inside a kernel. Each role (a producer thread, a consumer warpgroup) stamps what it turns to: it issues a copy,
// waits at a barrier, issues wgmma, waits for it, writes its results. `diagnose kernels run FILE.json --timeline` draws the stamps.
//
// This header is all that a program needs. Without -DDIAGNOSE_TIMELINE every call below is empty and the machine code is what it
// was without them. With it:
//
//     #include "diagnose_timeline.cuh"
//     using diagnose_timeline::Kind;
//
//     __global__ void kernel(...) {
//         diagnose_timeline::Track track(role, threadIdx.x % 128 == 0);    // one recording thread a role
//         track.begin(Kind::barrier_wait, step);                           // ends what was open, begins this
//         ...
//         track.end();
//     }
//
//     int main() {
//         diagnose_timeline::start("kernel", {"producer", "consumer"});    // before the launch; roles 0 and 1
//         kernel<<<...>>>(...);
//         diagnose_timeline::write();                                      // waits for the GPU and writes the file
//     }
//
// Environment: DIAGNOSE_TIMELINE_FILE (default diagnose-timeline.json), DIAGNOSE_TIMELINE_BLOCK (the block recorded, by its linear
// index; default 0) and DIAGNOSE_TIMELINE_STAMPS (stamps a role; default 4096). Kernel and host calls stand in one source file.
#pragma once

#include <initializer_list>

#ifdef DIAGNOSE_TIMELINE
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#endif

namespace diagnose_timeline {

// What a role does. Those whose name ends in "wait" count as waiting. user0 to user3 get their names by name().
enum class Kind : unsigned {
    opened, tma_issue, copy_wait, barrier_wait, wgmma_issue, wgmma_wait, compute, epilogue, store_wait, user0, user1, user2, user3
};

#ifdef DIAGNOSE_TIMELINE

constexpr int kKinds = 13;
inline const char* g_kinds[kKinds] = {"opened",  "tma-issue", "copy-wait",  "barrier-wait", "wgmma-issue", "wgmma-wait", "compute",
                                      "epilogue", "store-wait", "user0",     "user1",        "user2",       "user3"};

enum class Edge : unsigned { begin, end, point };

// The clock is that of the multiprocessor, the nanoseconds are the low half of the GPU's timer.
struct __align__(16) Stamp {
    unsigned long long clock;
    unsigned nanoseconds, what;  // what: kind in bits 0-3, edge in bits 4-5, argument in bits 6-31
};

struct Buffer {
    Stamp* stamps;  // roles x capacity
    unsigned block, roles, capacity;
};
static __constant__ Buffer g_buffer;  // read at each stamp, so that a Track takes two registers only

// The stamps of one role of the recorded block. Only the thread whose `records` is true writes.
class Track {
   public:
    Track() = default;
    __device__ __forceinline__ Track(unsigned role, bool records) {
        unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        if (!records || !g_buffer.stamps || block != g_buffer.block || role >= g_buffer.roles) return;
        next_ = role * g_buffer.capacity;
        left_ = g_buffer.capacity;
        unsigned multiprocessor;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
        stamp(Kind::opened, Edge::point, multiprocessor);
    }
    // Ends what is open and begins `kind`; `argument` is a step or a tile, below 2^26.
    __device__ __forceinline__ void begin(Kind kind, unsigned argument = 0) { stamp(kind, Edge::begin, argument); }
    __device__ __forceinline__ void end() { stamp(Kind::opened, Edge::end, 0); }
    __device__ __forceinline__ void point(Kind kind, unsigned argument = 0) { stamp(kind, Edge::point, argument); }

   private:
    __device__ __forceinline__ void stamp(Kind kind, Edge edge, unsigned argument) {
        if (left_ == 0) return;
        --left_;
        unsigned long long clock;
        unsigned nanoseconds;
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
        asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(nanoseconds)::"memory");
        unsigned what = unsigned(kind) | unsigned(edge) << 4 | argument << 6;
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(g_buffer.stamps + next_), "r"(unsigned(clock)), "r"(unsigned(clock >> 32)),
                     "r"(nanoseconds), "r"(what)
                     : "memory");
        ++next_;
    }
    unsigned next_ = 0, left_ = 0;
};

struct Recording {
    std::string kernel;
    std::vector<std::string> roles;
    Buffer buffer{};
};
inline Recording g_recording;

inline void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "error: diagnose_timeline: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

inline unsigned from_environment(const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    if (!text || !*text) return otherwise;
    char* end = nullptr;
    unsigned long value = std::strtoul(text, &end, 10);
    if (*end || value > 0xffffffu) {
        std::fprintf(stderr, "error: %s wants a number below 16777216, got %s\n", name, text);
        std::exit(1);
    }
    return unsigned(value);
}

// A user kind's name in the file; a literal.
inline void name(Kind kind, const char* text) { g_kinds[unsigned(kind)] = text; }

// Static, as the buffer is: each source file that records has its own.
static inline void start(const char* kernel, std::initializer_list<const char*> roles) {
    g_recording.kernel = kernel;
    g_recording.roles.assign(roles.begin(), roles.end());
    Buffer& b = g_recording.buffer;
    b.block = from_environment("DIAGNOSE_TIMELINE_BLOCK", 0);
    b.capacity = from_environment("DIAGNOSE_TIMELINE_STAMPS", 4096);
    b.roles = unsigned(roles.size());
    if (b.stamps) check(cudaFree(b.stamps), "cudaFree");
    size_t bytes = size_t(b.roles) * b.capacity * sizeof(Stamp);
    check(cudaMalloc(&b.stamps, bytes), "cudaMalloc");
    check(cudaMemset(b.stamps, 0, bytes), "cudaMemset");
    check(cudaMemcpyToSymbol(g_buffer, &b, sizeof b), "cudaMemcpyToSymbol");
}

inline void put_text(std::FILE* file, const char* text) {
    std::fputc('"', file);
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\') std::fputc('\\', file);
        if ((unsigned char)*text >= ' ') std::fputc(*text, file);
    }
    std::fputc('"', file);
}

// The stamps of the last launch: after several, later ones have replaced earlier ones, and where the nanoseconds go back begins
// what is left of an earlier launch (the reader stops there).
inline void write() {
    const Buffer& b = g_recording.buffer;
    check(cudaDeviceSynchronize(), "the kernel");
    std::vector<Stamp> stamps(size_t(b.roles) * b.capacity);
    check(cudaMemcpy(stamps.data(), b.stamps, stamps.size() * sizeof(Stamp), cudaMemcpyDeviceToHost), "cudaMemcpy");
    int device = 0;
    cudaDeviceProp properties;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    const char* path = std::getenv("DIAGNOSE_TIMELINE_FILE");
    if (!path || !*path) path = "diagnose-timeline.json";
    std::FILE* file = std::fopen(path, "w");
    if (!file) {
        std::fprintf(stderr, "error: diagnose_timeline: cannot write %s\n", path);
        std::exit(1);
    }
    std::fprintf(file, "{\"format\": \"diagnose-timeline\", \"version\": 1, \"kernel\": ");
    put_text(file, g_recording.kernel.c_str());
    std::fprintf(file, ", \"device\": ");
    put_text(file, properties.name);
    std::fprintf(file, ", \"block\": %u, \"capacity\": %u,\n \"kinds\": [", b.block, b.capacity);
    for (int i = 0; i < kKinds; ++i) {
        if (i) std::fputs(", ", file);
        put_text(file, g_kinds[i]);
    }
    std::fprintf(file, "],\n \"tracks\": [");
    for (unsigned role = 0; role < b.roles; ++role) {
        std::fprintf(file, "%s\n  {\"role\": ", role ? "," : "");
        put_text(file, g_recording.roles[role].c_str());
        std::fprintf(file, ", \"stamps\": [");
        for (unsigned i = 0; i < b.capacity; ++i) {
            const Stamp& s = stamps[size_t(role) * b.capacity + i];
            if (s.clock == 0) break;  // never written
            std::fprintf(file, "%s\n   [%llu, %u, %u, %u, %u]", i ? "," : "", s.clock, s.nanoseconds, s.what & 15,
                         s.what >> 4 & 3, s.what >> 6);
        }
        std::fputs("]}", file);
    }
    std::fputs("\n ]}\n", file);
    if (std::fclose(file)) {
        std::fprintf(stderr, "error: diagnose_timeline: cannot write %s\n", path);
        std::exit(1);
    }
}

#else

#ifdef __CUDACC__
struct Track {
    Track() = default;
    __device__ __forceinline__ Track(unsigned, bool) {}
    __device__ __forceinline__ void begin(Kind, unsigned = 0) {}
    __device__ __forceinline__ void end() {}
    __device__ __forceinline__ void point(Kind, unsigned = 0) {}
};
#endif
inline void name(Kind, const char*) {}
inline void start(const char*, std::initializer_list<const char*>) {}
inline void write() {}

#endif

}  // namespace diagnose_timeline
