#pragma once

// How one operation is spread over threads. Every helper runs f on the calling thread alone when `threads` is
// 1: no OpenMP team is formed then, which is also what lets thread sanitizer see everything. Owned by
// CpuBackend; called from the rank's compute thread, f runs on the team.

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace metp::cpu {

/// Work below this many elements is not worth a team.
inline constexpr int64_t kSerialElements = 1 << 14;

/// `threads`, or 1 when there is little to do.
inline int TeamFor(int threads, int64_t elements) { return elements < kSerialElements ? 1 : threads; }

/// Splits [0, n) into `threads` consecutive ranges whose ends are multiples of `grain`, and calls f(thread,
/// begin, end) once for each that is not empty. The split depends on the arguments alone, so sums per range
/// are repeatable.
template <class F>
void ParallelRanges(int threads, int64_t n, int64_t grain, const F& f) {
  const int64_t grains = (n + grain - 1) / grain;
  auto range = [&](int64_t t) {
    const int64_t begin = std::min(n, grains * t / threads * grain);
    const int64_t end = std::min(n, grains * (t + 1) / threads * grain);
    if (begin < end) f(static_cast<int>(t), begin, end);
  };
  if (threads == 1) {
    range(0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) range(t);
}

/// Calls f(thread, task) for each task in [0, n), each as soon as a thread is free. Tasks must be
/// independent.
template <class F>
void ParallelTasks(int threads, int64_t n, const F& f) {
  if (threads == 1 || n == 1) {
    for (int64_t task = 0; task < n; ++task) f(0, task);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < n; ++task) f(omp_get_thread_num(), task);
}

}  // namespace metp::cpu
