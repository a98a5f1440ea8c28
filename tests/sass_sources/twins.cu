// Pairs of kernels, a fault and its fix, whose cause is visible in the code alone.
#include <cuda_fp16.h>

// --- spill: 96 live values in 64 registers, against 32 ---

template <int N>
__device__ __forceinline__ void mix(float *out, const float *in, int n) {
  float x[N];
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = in[i * 1024 + threadIdx.x];
  for (int j = 0; j < n; j++) {
    float y = in[j];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = x[i] * x[(i + 7) % N] + y;
    __syncthreads();
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; i++) sum += x[i];
  out[threadIdx.x] = sum;
}
__global__ void __launch_bounds__(256, 4) spill(float *out, const float *in, int n) { mix<96>(out, in, n); }
__global__ void __launch_bounds__(256, 4) spill_fixed(float *out, const float *in, int n) { mix<32>(out, in, n); }

// --- spill outside the loop only: values that wait in local memory while a loop needs the registers ---

__global__ void __launch_bounds__(256, 4) spill_outside(float *out, const float *in, int n) {
  float keep[60], x[40];
#pragma unroll
  for (int i = 0; i < 60; i++) keep[i] = in[i * 1024 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 40; i++) x[i] = in[i * 512 + threadIdx.x];
  for (int j = 0; j < n; j++) {
#pragma unroll
    for (int i = 0; i < 40; i++) x[i] = x[i] * x[(i + 7) % 40] + 1.5f;
    __syncthreads();
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 60; i++) sum += keep[i] * x[i % 40];
  out[threadIdx.x] = sum;
}

// --- local array: a run-time index, against a select chain ---

__global__ void local_array(float *out, const int *index, int n) {
  float bins[64];
  for (int i = 0; i < 64; i++) bins[i] = 0;
  for (int i = 0; i < n; i++) bins[index[i * 256 + threadIdx.x] & 63] += i;
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += bins[i] * i;
  out[threadIdx.x] = sum;
}
__global__ void local_array_fixed(float *out, const int *index, int n) {
  float low = 0, high = 0;
  for (int i = 0; i < n; i++) (index[i * 256 + threadIdx.x] & 63) < 32 ? low += i : high += i;
  out[threadIdx.x] = low - high;
}

// --- double by accident: a literal without f ---

__global__ void doubles(float *out, const float *in, int n) {
  for (int i = threadIdx.x; i < n; i += 256) out[i] = in[i] * 1.1 + 0.3;
}
__global__ void doubles_fixed(float *out, const float *in, int n) {
  for (int i = threadIdx.x; i < n; i += 256) out[i] = in[i] * 1.1f + 0.3f;
}
__global__ void doubles_meant(double *out, const double *in, int n) {
  for (int i = threadIdx.x; i < n; i += 256) out[i] = in[i] * 1.1 + 0.3;
}

// --- slow math: run-time divisor, against a power of two ---

__global__ void division(int *out, const int *in, int n, int d) {
  for (int i = threadIdx.x; i < n; i += 256) out[i] = in[i] / (d + i) + in[i] % (d + 3 * i);
}
__global__ void division_fixed(int *out, const int *in, int n, int d) {
  for (int i = threadIdx.x; i < n; i += 256) out[i] = (in[i] >> d) + (in[i] & 7);
}

// --- matrix work on FFMA from half data, against the same reads used once ---

__global__ void __launch_bounds__(256) outer_half(float *c, const __half *a, const __half *b, int k) {
  __shared__ __half ta[16][128], tb[16][128];
  float acc[8][8] = {};
  const int ty = threadIdx.x / 16 * 8, tx = threadIdx.x % 16 * 8;
  for (int at = 0; at < k; at += 16) {
    for (int i = threadIdx.x; i < 16 * 128; i += 256) ta[i / 128][i % 128] = a[at * 128 + i], tb[i / 128][i % 128] = b[at * 128 + i];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; j++) {
      float x[8], y[8];
#pragma unroll
      for (int i = 0; i < 8; i++) x[i] = __half2float(ta[j][ty + i]), y[i] = __half2float(tb[j][tx + i]);
#pragma unroll
      for (int p = 0; p < 8; p++)
#pragma unroll
        for (int q = 0; q < 8; q++) acc[p][q] += x[p] * y[q];
    }
    __syncthreads();
  }
  for (int p = 0; p < 8; p++)
    for (int q = 0; q < 8; q++) c[(ty + p) * 128 + tx + q] = acc[p][q];
}
__global__ void stencil(float *out, const __half *in, int n) {
  for (int i = threadIdx.x; i < n; i += 256)
    out[i] = 0.25f * __half2float(in[i]) + 0.5f * __half2float(in[i + 1]) + 0.25f * __half2float(in[i + 2]);
}

// --- staging through registers, against cp.async ---

__global__ void __launch_bounds__(256) staged(float4 *out, const float4 *in, int n) {
  __shared__ float4 tile[256];
  float4 sum = {};
  for (int i = 0; i < n; i++) {
    tile[threadIdx.x] = in[i * 256 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 4; j++) {
      float4 v = tile[(threadIdx.x * 7 + j) & 255];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}
template <int STAGES>
__global__ void __launch_bounds__(256) copied(float4 *out, const float4 *in, int n) {
  __shared__ float4 tile[STAGES][256];
  float4 sum = {};
  auto load = [&](int i) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[i % STAGES][threadIdx.x]);
    if (i < n) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + i * 256 + threadIdx.x));
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) load(i);
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (STAGES == 1) load(i);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES > 1 ? STAGES - 2 : 0) : "memory");
    __syncthreads();
    if (STAGES > 1) load(i + STAGES - 1);
    float4 v = tile[i % STAGES][(threadIdx.x * 7) & 255];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    if (STAGES == 1) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
template __global__ void copied<1>(float4 *, const float4 *, int);
template __global__ void copied<2>(float4 *, const float4 *, int);
template __global__ void copied<3>(float4 *, const float4 *, int);
template __global__ void copied<4>(float4 *, const float4 *, int);

int main() { return 0; }
