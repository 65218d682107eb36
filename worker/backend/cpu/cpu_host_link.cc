#include "worker/backend/cpu/cpu_host_link.h"

#include <cstring>

#include "worker/backend/cpu/adamw.h"

namespace metp::cpu {

// Streams wait for each other: all end before any goes.
CpuHostLink::~CpuHostLink() {
  for (TaskStream& stream : streams_) stream.Stop();
  for (TaskStream& stream : streams_) stream.Join();
}

HostTask CpuHostLink::Post(HostTask::Stream stream, const std::vector<HostTask>& behind,
                           std::function<void()> work) {
  auto task = [this, behind, work = std::move(work)]() -> double {
    double waited = 0;
    for (const HostTask& before : behind) waited += streams_[before.stream].Await(before.number).seconds;
    work();
    return waited;
  };
  return {stream, streams_[stream].Post(std::move(task))};
}

void CpuHostLink::Await(HostTask task) {
  const TaskStream::Span stood = streams_[task.stream].Await(task.number);
  exposed_ += stood.seconds;
  NoteWait(task.stream, stood.start, stood.seconds);
}

HostLinkTimes CpuHostLink::TakeTimes() {
  HostLinkTimes times;
  times.exposed = std::exchange(exposed_, 0);
  for (const HostTask::Stream stream : {HostTask::kOut, HostTask::kIn, HostTask::kUpdate}) {
    for (const TaskStream::Span& span : streams_[stream].TakeSpans()) {
      (stream == HostTask::kUpdate ? times.updating : times.copying) += span.seconds;
      Note(stream, span.start, span.seconds);
    }
  }
  return times;
}

HostTask CpuHostLink::CopyOut(const Matrix& from, const HostBlock& to, const Event&,
                              const std::vector<HostTask>& behind) {
  return Post(HostTask::kOut, behind, [from, to = to.data()] {
    if (!from.empty()) std::memcpy(to, from.data, from.bytes());
  });
}

HostTask CpuHostLink::CopyIn(const HostBlock& from, const Matrix& to, const Event&,
                             const std::vector<HostTask>& behind) {
  return Post(HostTask::kIn, behind, [from = from.data(), to] {
    if (!to.empty()) std::memcpy(to.data, from, to.bytes());
  });
}

HostTask CpuHostLink::AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                            const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                            const std::vector<HostTask>& behind) {
  const auto floats = [](const HostBlock& block) { return static_cast<float*>(block.data()); };
  auto* bf16 = narrow == nullptr ? nullptr : static_cast<uint16_t*>(narrow->data());
  return Post(HostTask::kUpdate, behind,
              [this, step, elements, g = floats(g), m = floats(m), v = floats(v), w = floats(w), bf16] {
                AdamWOnHost(threads_, step, elements, g, m, v, w, bf16);
              });
}

}  // namespace metp::cpu
