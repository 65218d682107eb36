#pragma once

// The CUDA backend's host link: page-locked host memory, a stream for copies out, one for copies in and one for AdamW on the
// host, which is a host function in its stream's order. The calling thread never waits; what it must wait for before it
// looks at host memory itself is Await and then Backend::Synchronize.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>

#include "worker/backend/cuda/event_pool.h"
#include "worker/backend/cuda/stream.h"
#include "worker/backend/host_link.h"

namespace metp::cuda {

class CudaBackend;

class CudaHostLink final : public HostLink {
 public:
  /// `backend` must outlive the link; updates run on `threads` threads of the host.
  CudaHostLink(CudaBackend& backend, int threads);
  ~CudaHostLink() override;

  HostTask CopyOut(const Matrix& from, const HostBlock& to, const Event& after,
                   const std::vector<HostTask>& behind) override;
  HostTask CopyIn(const HostBlock& from, const Matrix& to, const Event& after,
                  const std::vector<HostTask>& behind) override;
  HostTask AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                 const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                 const std::vector<HostTask>& behind) override;
  void Await(HostTask task) override;
  /// Of the tasks that are done; those behind the first that is not are counted the next time.
  HostLinkTimes TakeTimes() override;

 protected:
  void* AllocateBytes(int64_t bytes) override;
  void FreeBytes(void* data, int64_t bytes) override;

 private:
  struct Span {
    Event start, done;
  };
  struct Lane {
    Stream stream;
    uint64_t first = 1;      // number of spans.front()
    std::deque<Span> spans;  // posted and not yet timed
  };

  /// Runs `work(stream)` behind `after` and `behind`.
  template <typename Work>
  HostTask Post(HostTask::Stream on, const Event& after, const std::vector<HostTask>& behind,
                const Work& work);
  void WaitFor(cudaStream_t stream, HostTask task);
  /// Page-locked memory; nullptr when there is none left.
  void* TryLock(int64_t bytes);
  /// Unlocks the blocks that are kept, once no work in flight touches them.
  void FreeKept();

  CudaBackend& backend_;
  const int threads_;
  std::array<Lane, kHostStreams> lanes_;
  struct Wait {
    HostTask::Stream stream;
    Span span;
  };
  std::deque<Wait> waits_;              // of the compute stream, not yet timed
  std::multimap<int64_t, void*> kept_;  // page-locked blocks, by size: locking pages takes milliseconds
};

}  // namespace metp::cuda
