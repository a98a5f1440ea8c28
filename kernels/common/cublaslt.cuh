// cuBLASLt loaded by name, so that neither its header nor a link flag is needed; DIAGNOSE_CUBLASLT names it where the loader does not
// find it. Values and shapes of cublasLt.h, the same in versions 12 and 13.
#pragma once

#include <dlfcn.h>
#include <library_types.h>

#include "../common.cuh"

namespace lt {
using Handle = void*;
struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
constexpr int kCompute32F = 68, kCompute64F = 70, kCompute32FFastTf32 = 77;
// CUBLASLT_MATMUL_DESC_: TRANSA, TRANSB, EPILOGUE, BIAS_POINTER
constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBias = 8;
constexpr int kBatches = 5, kBatchStride = 6;  // CUBLASLT_MATRIX_LAYOUT_: BATCH_COUNT, STRIDED_BATCH_OFFSET
constexpr int kWorkspaceBytes = 1;             // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kTransposed = 1;                 // CUBLAS_OP_T

inline void* library() {
    const char* named = std::getenv("DIAGNOSE_CUBLASLT");
    for (const char* name : {named, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
        if (name && *name)
            if (void* found = dlopen(name, RTLD_NOW)) return found;
    require(false, "no libcublasLt.so.13 or .12 was found (DIAGNOSE_CUBLASLT=/path/to/libcublasLt.so.13 names it)");
    return nullptr;
}

// Calls `name` and ends the program unless it returns CUBLAS_STATUS_SUCCESS.
template <class... T>
void call(void* library, const char* name, T... values) {
    auto function = reinterpret_cast<int (*)(T...)>(dlsym(library, name));
    require(function != nullptr, std::string(name) + " is not in the library");
    int status = function(values...);
    require(status == 0, std::string(name) + " failed with status " + std::to_string(status));
}
}  // namespace lt
