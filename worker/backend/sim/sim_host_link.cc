#include "worker/backend/sim/sim_host_link.h"

#include <algorithm>

#include "worker/backend/sim/sim_backend.h"

namespace metp::sim {

HostTask SimHostLink::Post(HostTask::Stream stream, double after, const std::vector<HostTask>& behind,
                           double seconds) {
  Stream& on = streams_[stream];
  double start = std::max(on.free, after);
  for (const HostTask& task : behind) start = std::max(start, DoneAt(task));
  on.free = start + seconds;
  on.done.push_back(on.free);
  Note(stream, start, seconds);
  return {stream, on.done.size()};
}

HostTask SimHostLink::CopyOut(const Matrix& from, const HostBlock&, const Event& after,
                              const std::vector<HostTask>& behind) {
  const double seconds = MessageSeconds(link_, static_cast<double>(from.bytes()));
  times_.copying += seconds;
  return Post(HostTask::kOut, after.seconds, behind, seconds);
}

HostTask SimHostLink::CopyIn(const HostBlock&, const Matrix& to, const Event& after,
                             const std::vector<HostTask>& behind) {
  const double seconds = MessageSeconds(link_, static_cast<double>(to.bytes()));
  times_.copying += seconds;
  return Post(HostTask::kIn, after.seconds, behind, seconds);
}

// Bound by the host's memory: the gradient is read, moments and weights are read and written.
HostTask SimHostLink::AdamW(const AdamWStep&, int64_t elements, const HostBlock&, const HostBlock&,
                            const HostBlock&, const HostBlock&, const HostBlock* narrow,
                            const std::vector<HostTask>& behind) {
  const int64_t bytes = elements * (7 * SizeOf(DType::kF32) + (narrow == nullptr ? 0 : SizeOf(DType::kBF16)));
  const double seconds = static_cast<double>(bytes) / host_bytes_per_second_;
  times_.updating += seconds;
  return Post(HostTask::kUpdate, 0, behind, seconds);
}

void SimHostLink::Await(HostTask task) {
  const double wait = DoneAt(task) - backend_.now();
  if (wait <= 0) return;
  times_.exposed += wait;
  NoteWait(task.stream, backend_.now(), wait);
  backend_.Advance(wait);
}

}  // namespace metp::sim
