#include "worker/backend/cuda/cuda_host_link.h"

#include <memory>

#include "worker/backend/cpu/adamw.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {
namespace {

struct Update {
  int threads;
  AdamWStep step;
  int64_t elements;
  const float* g;
  float *m, *v, *w;
  uint16_t* narrow;
};

void RunUpdate(void* posted) {
  const std::unique_ptr<Update> x(static_cast<Update*>(posted));
  cpu::AdamWOnHost(x->threads, x->step, x->elements, x->g, x->m, x->v, x->w, x->narrow);
}

}  // namespace

CudaHostLink::CudaHostLink(CudaBackend& backend, int threads) : backend_(backend), threads_(threads) {}

CudaHostLink::~CudaHostLink() { FreeKept(); }

void CudaHostLink::FreeKept() {
  for (const Lane& lane : lanes_) (void)cudaStreamSynchronize(lane.stream);
  for (const auto& [bytes, data] : kept_) (void)cudaFreeHost(data);
  kept_.clear();
}

void* CudaHostLink::TryLock(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  METP_CUDA(error);
  return data;
}

void* CudaHostLink::AllocateBytes(int64_t bytes) {
  if (const auto it = kept_.find(bytes); it != kept_.end()) {
    void* data = it->second;
    kept_.erase(it);
    return data;
  }
  void* data = TryLock(bytes);
  if (data == nullptr && !kept_.empty()) {
    FreeKept();
    data = TryLock(bytes);
  }
  return data;
}

// Work in flight may still touch it; whoever gets it next posts behind that work (KeptLayers, HostState).
void CudaHostLink::FreeBytes(void* data, int64_t bytes) { kept_.emplace(bytes, data); }

template <typename Work>
HostTask CudaHostLink::Post(HostTask::Stream on, const Event& after, const std::vector<HostTask>& behind,
                            const Work& work) {
  Lane& lane = lanes_[on];
  if (after.point != nullptr) METP_CUDA(cudaStreamWaitEvent(lane.stream, Handle(after)));
  for (const HostTask& task : behind) WaitFor(lane.stream, task);
  Event start = backend_.events().Record(lane.stream);
  work(lane.stream);
  lane.spans.push_back({std::move(start), backend_.events().Record(lane.stream)});
  return {on, lane.first + lane.spans.size() - 1};
}

void CudaHostLink::WaitFor(cudaStream_t stream, HostTask task) {
  const Lane& of = lanes_[task.stream];
  if (task.number < of.first) return;  // done and timed
  METP_CUDA(cudaStreamWaitEvent(stream, Handle(of.spans[task.number - of.first].done)));
}

HostTask CudaHostLink::CopyOut(const Matrix& from, const HostBlock& to, const Event& after,
                               const std::vector<HostTask>& behind) {
  return Post(HostTask::kOut, after, behind, [&](cudaStream_t stream) {
    if (from.empty()) return;
    METP_CUDA(cudaMemcpyAsync(to.data(), from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDeviceToHost,
                              stream));
  });
}

HostTask CudaHostLink::CopyIn(const HostBlock& from, const Matrix& to, const Event& after,
                              const std::vector<HostTask>& behind) {
  return Post(HostTask::kIn, after, behind, [&](cudaStream_t stream) {
    if (to.empty()) return;
    METP_CUDA(cudaMemcpyAsync(to.data, from.data(), static_cast<size_t>(to.bytes()), cudaMemcpyHostToDevice,
                              stream));
  });
}

HostTask CudaHostLink::AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                             const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                             const std::vector<HostTask>& behind) {
  const auto floats = [](const HostBlock& block) { return static_cast<float*>(block.data()); };
  auto update =
      std::make_unique<Update>(Update{threads_, step, elements, floats(g), floats(m), floats(v), floats(w),
                                      narrow == nullptr ? nullptr : static_cast<uint16_t*>(narrow->data())});
  return Post(HostTask::kUpdate, {}, behind, [&](cudaStream_t stream) {
    METP_CUDA(cudaLaunchHostFunc(stream, RunUpdate, update.get()));
    (void)update.release();  // RunUpdate's now
  });
}

void CudaHostLink::Await(HostTask task) {
  if (task.number == 0 || task.number < lanes_[task.stream].first) return;
  Event start = backend_.Record();
  WaitFor(backend_.stream(), task);
  waits_.push_back({task.stream, {std::move(start), backend_.Record()}});
}

HostLinkTimes CudaHostLink::TakeTimes() {
  HostLinkTimes times;
  const auto passed = [](const Span& span) { return cudaEventQuery(Handle(span.done)) == cudaSuccess; };
  for (; !waits_.empty() && passed(waits_.front().span); waits_.pop_front()) {
    const auto& [stream, span] = waits_.front();
    const double seconds = backend_.Seconds(span.start, span.done);
    times.exposed += seconds;
    NoteWait(stream, backend_.TimeOf(span.start), seconds);
  }
  for (const HostTask::Stream on : {HostTask::kOut, HostTask::kIn, HostTask::kUpdate}) {
    Lane& lane = lanes_[on];
    for (; !lane.spans.empty() && passed(lane.spans.front()); lane.spans.pop_front(), ++lane.first) {
      const Span& span = lane.spans.front();
      const double seconds = backend_.Seconds(span.start, span.done);
      (on == HostTask::kUpdate ? times.updating : times.copying) += seconds;
      Note(on, backend_.TimeOf(span.start), seconds);
    }
  }
  return times;
}

}  // namespace metp::cuda
