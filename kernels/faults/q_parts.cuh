// What split decode attention shares: a part holds the weighted sum of a span of tokens (DIM floats), the largest exponent (base 2)
// and the sum of the weights.
#pragma once

__device__ __forceinline__ void unpack(uint4 raw, float (&out)[8]) {
    const unsigned w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out[2 * i] = __uint_as_float(w[i] << 16);
        out[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

// A block of DIM threads for each row of `out`.
template <int DIM>
__global__ void combine_parts(const float* __restrict__ parts, float* __restrict__ out, int spans) {
    const float* from = parts + size_t(blockIdx.x) * spans * (DIM + 2);
    float top = -INFINITY, sum = 0, acc = 0;
    for (int s = 0; s < spans; ++s) top = fmaxf(top, from[s * (DIM + 2) + DIM]);
    for (int s = 0; s < spans; ++s) {
        float weight = exp2f(from[s * (DIM + 2) + DIM] - top);
        acc += weight * from[s * (DIM + 2) + threadIdx.x];
        sum += weight * from[s * (DIM + 2) + DIM + 1];
    }
    out[size_t(blockIdx.x) * DIM + threadIdx.x] = acc / sum;
}
