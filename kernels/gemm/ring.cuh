// The ring of stages between a producer thread and the consumer warpgroups. A stage is `full` when its bytes have landed, and
// `empty` when every consumer that the next copy would disturb has released it.
#pragma once

#include "../common/diagnose_timeline.cuh"
#include "hopper_gemm.cuh"

using diagnose_timeline::Kind;

constexpr int kConsumers = 2, kThreads = 128 * (1 + kConsumers);  // warpgroup 0 is the producer
// 65536 registers: 168 a thread at launch; 40 + 2 * 232 afterwards fit as well.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

// Cluster: the blocks that share copies. Each releases a stage in all of them.
template <int Stages, int Cluster, int Bytes = kStageBytes>
struct Ring {
    uint32_t stages;  // address of the first
    uint64_t *full, *empty;
    int slot = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ Ring(unsigned char* shared, int barriers)
        : stages(hopper::address(shared)), full(reinterpret_cast<uint64_t*>(shared + barriers)), empty(full + Stages) {}

    // By one thread, before the barrier of the block or cluster.
    __device__ __forceinline__ void init() {
        for (int i = 0; i < Stages; ++i) {
            hopper::barrier_init(&full[i], 1);
            hopper::barrier_init(&empty[i], kConsumers * Cluster);
        }
        hopper::barrier_init_visible();
    }
    __device__ __forceinline__ void next() {
        if (++slot == Stages) slot = 0, phase ^= 1;
    }
    __device__ __forceinline__ uint32_t stage() const { return stages + slot * Bytes; }

    // By every thread of a consumer warpgroup, after wgmma_wait: the first ones signal one block each.
    __device__ __forceinline__ void release(int released, int thread) {
        if constexpr (Cluster == 1) {
            if (thread == 0) hopper::barrier_arrive(&empty[released]);
        } else {
            if (thread < Cluster) hopper::barrier_arrive_at(&empty[released], thread);
        }
    }

    // A consumer warpgroup's product over `steps` stages; issue(stage, step) issues and commits one of them. It stays in flight while
    // the next is issued.
    template <class Issue>
    __device__ __forceinline__ void multiply_with(float (&sum)[kN / 2], int steps, int thread, diagnose_timeline::Track& track,
                                                  Issue issue) {
        int previous = 0;
        for (int step = 0; step < steps; ++step) {
            track.begin(Kind::barrier_wait, step);
            hopper::barrier_wait(&full[slot], phase);
            track.begin(Kind::wgmma_issue, step);
            issue(stage(), step);
            track.begin(Kind::wgmma_wait, step);
            hopper::wgmma_wait<1>();
            if (step > 0) release(previous, thread);
            previous = slot;
            next();
        }
        hopper::wgmma_wait<0>();
        hopper::pin(sum);
        release(previous, thread);
    }
    __device__ __forceinline__ void multiply(float (&sum)[kN / 2], int steps, int group, int thread,
                                             diagnose_timeline::Track& track) {
        multiply_with(sum, steps, thread, track,
                      [&](uint32_t stage, int step) { multiply_stage(sum, stage, group, step); });
    }
};
