// Counts a program's kernel launches and their time through CUPTI's activity records, at the program's own speed.
//
// The CUDA driver loads this library into every process that initialises CUDA, because CUDA_INJECTION64_PATH names it
// (CUPTI's documentation: "Injection"). It keeps one row a kernel name, device and launch configuration, so that a day
// of training needs no more memory than a minute, and writes them to DIAGNOSE_SURVEY/PID.tsv: at the end of the
// process, and once a second until then, so that a process that is killed loses a second at most. It never fails the
// program: what cannot be measured is written as a line `error`.
//
// Rows: launch, count, total ns, shortest ns, longest ns, first start ns, device, grid x y z, block x y z,
// static and dynamic shared memory in bytes, launched by a graph (0 or 1), mangled name. Fields are separated by tabs.

#include <cupti.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#ifndef KERNEL_RECORD  // the newest record of the headers; what is read here stands in all since CUDA 11
#define KERNEL_RECORD CUpti_ActivityKernel10
#endif

namespace {

constexpr size_t kBufferBytes = 4 << 20;  // some 20,000 records; CUPTI's documentation advises 1 to 10 MB
constexpr size_t kAlignment = 8;          // CUPTI's ACTIVITY_RECORD_ALIGNMENT
constexpr auto kRewriteAfter = std::chrono::seconds(1);

struct Key {
  std::string name;
  uint32_t device;
  int32_t grid[3], block[3], shared_static, shared_dynamic;
  bool graph;

  auto tied() const {
    return std::tie(name, device, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_static,
                    shared_dynamic, graph);
  }
  bool operator<(const Key& other) const { return tied() < other.tied(); }
};

struct Row {
  uint64_t count = 0, total = 0, shortest = UINT64_MAX, longest = 0, first = UINT64_MAX;
};

std::mutex mutex;
// Never destroyed: CUPTI's own thread may still deliver records while the process runs its destructors.
auto& rows = *new std::map<Key, Row>;
size_t dropped = 0;
pid_t owner = 0;  // a child by fork() has a copy of the rows, which are its parent's to write
std::string failure;
std::chrono::steady_clock::time_point written;

std::string program() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "?";
}

// The caller holds the mutex. The file appears whole: a reader sees this state or the one before.
void write_rows(bool last) {
  const char* folder = std::getenv("DIAGNOSE_SURVEY");
  if (folder == nullptr || getpid() != owner) return;
  const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".tsv", fresh = path + ".new";
  FILE* file = std::fopen(fresh.c_str(), "w");
  if (file == nullptr) return;
  std::fprintf(file, "process\t%d\t%s\n", getpid(), program().c_str());
  if (!failure.empty()) std::fprintf(file, "error\t%s\n", failure.c_str());
  for (const auto& [key, row] : rows) {
    std::fprintf(file, "launch\t%llu\t%llu\t%llu\t%llu\t%llu\t%u\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
                 static_cast<unsigned long long>(row.count), static_cast<unsigned long long>(row.total),
                 static_cast<unsigned long long>(row.shortest), static_cast<unsigned long long>(row.longest),
                 static_cast<unsigned long long>(row.first), key.device, key.grid[0], key.grid[1], key.grid[2],
                 key.block[0], key.block[1], key.block[2], key.shared_static, key.shared_dynamic, key.graph ? 1 : 0,
                 key.name.c_str());
  }
  if (last) std::fprintf(file, "end\t%zu\n", dropped);
  const bool good = std::ferror(file) == 0;
  if (std::fclose(file) == 0 && good) std::rename(fresh.c_str(), path.c_str());
  written = std::chrono::steady_clock::now();
}

void note(const KERNEL_RECORD& record) {
  if (record.end < record.start || record.start == 0) return;  // CUPTI marks a kernel without time stamps so
  Key key{record.name != nullptr ? record.name : "?",
          record.deviceId,
          {record.gridX, record.gridY, record.gridZ},
          {record.blockX, record.blockY, record.blockZ},
          record.staticSharedMemory,
          record.dynamicSharedMemory,
          record.graphNodeId != 0};
  Row& row = rows[key];
  const uint64_t time = record.end - record.start;
  row.count += 1;
  row.total += time;
  row.shortest = std::min(row.shortest, time);
  row.longest = std::max(row.longest, time);
  row.first = std::min(row.first, record.start);
}

void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *most = 0;  // as many records as fit
}

void CUPTIAPI complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        note(*reinterpret_cast<const KERNEL_RECORD*>(record));
      }
    }
    size_t lost = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS) dropped += lost;
    if (std::chrono::steady_clock::now() - written > kRewriteAfter) write_rows(false);
  }
  std::free(buffer);
}

bool good(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return true;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  failure = std::string(what) + ": " + (text != nullptr ? text : "unknown error");
  return false;
}

void finish() {
  if (getpid() != owner) return;
  cuptiActivityFlushAll(1);  // outside the lock: it calls complete()
  const std::lock_guard<std::mutex> lock(mutex);
  write_rows(true);
}

}  // namespace

// Called by the CUDA driver while a process initialises CUDA.
extern "C" int InitializeInjection(void) {
  owner = getpid();
  const bool started = good(cuptiActivityRegisterCallbacks(request, complete), "cuptiActivityRegisterCallbacks") &&
                       good(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
  if (started) cuptiActivityFlushPeriod(1000);  // milliseconds
  {
    const std::lock_guard<std::mutex> lock(mutex);
    write_rows(false);
  }
  std::atexit(finish);
  return 1;
}
