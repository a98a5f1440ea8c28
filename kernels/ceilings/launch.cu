// What a launch costs: an empty kernel, alone, back to back in a stream, and as a node of a graph.
#include <chrono>

#include "measure.cuh"

__global__ void empty() {}

int main(int argc, char** argv) {
    Args args(argc, argv);
    args.done();
    Bench bench;
    double mhz = wake(bench, 100);
    constexpr int kLaunches = 1000;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) CHECK_CUDA(cudaEventCreate(&event));
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kLaunches; ++i) empty<<<1, 32, 0, stream>>>();
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&ready, graph, 0));

    auto between_events = [&](auto work) {
        float ms = 0;
        CHECK_CUDA(cudaEventRecord(events[0], stream));
        work();
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaEventRecord(events[1], stream));
        CHECK_CUDA(cudaEventSynchronize(events[1]));
        CHECK_CUDA(cudaEventElapsedTime(&ms, events[0], events[1]));
        return ms * 1e-3;
    };
    std::vector<double> clocks, single, streamed, graphed, host, round_trip;
    auto seconds_since = [](auto start) {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (int i = -2; i < kRepeats; ++i) {
        std::vector<double> ones;
        for (int j = 0; j < 101; ++j) ones.push_back(between_events([&] { empty<<<1, 32, 0, stream>>>(); }));
        std::nth_element(ones.begin(), ones.begin() + 50, ones.end());
        double all = between_events([&] {
            for (int j = 0; j < kLaunches; ++j) empty<<<1, 32, 0, stream>>>();
        });
        double nodes = between_events([&] { CHECK_CUDA(cudaGraphLaunch(ready, stream)); });
        auto start = std::chrono::steady_clock::now();
        for (int j = 0; j < 100; ++j) empty<<<1, 32, 0, stream>>>();  // fewer than the queue holds
        double called = seconds_since(start) / 100;
        CHECK_CUDA(cudaStreamSynchronize(stream));
        start = std::chrono::steady_clock::now();
        for (int j = 0; j < 100; ++j) {
            empty<<<1, 32, 0, stream>>>();
            CHECK_CUDA(cudaStreamSynchronize(stream));
        }
        double trip = seconds_since(start) / 100;
        mhz = bench.once([&](Stamp* s) { spin<<<1, 32>>>(1000000, s); }, 1).mhz;
        if (i < 0) continue;
        single.push_back(ones[50]), streamed.push_back(all / kLaunches), graphed.push_back(nodes / kLaunches);
        host.push_back(called), round_trip.push_back(trip), clocks.push_back(mhz);
    }
    print_line("launch:events", "s", single, clocks);        // between two events round one empty kernel
    print_line("launch:stream", "s", streamed, clocks);      // a kernel, back to back in a stream
    print_line("launch:graph", "s", graphed, clocks);        // a kernel, as a node of a chain: the shortest kernel
    print_line("launch:call", "s", host, clocks);            // the host's own time in a launch
    print_line("launch:round-trip", "s", round_trip, clocks);  // launch, run, and the host knows
    return 0;
}
