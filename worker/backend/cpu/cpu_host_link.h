#pragma once

// The CPU backend's host link: "device" and host memory are the same kind, copies and updates are real. With it a
// machine without a GPU runs every path that offload takes.

#include <array>
#include <functional>

#include "worker/backend/cpu/block_pool.h"
#include "worker/backend/cpu/task_stream.h"
#include "worker/backend/host_link.h"

namespace metp::cpu {

class CpuHostLink final : public HostLink {
 public:
  /// Updates run on `threads` threads.
  explicit CpuHostLink(int threads) : threads_(threads) {}
  ~CpuHostLink() override;

  HostTask CopyOut(const Matrix& from, const HostBlock& to, const Event& after,
                   const std::vector<HostTask>& behind) override;
  HostTask CopyIn(const HostBlock& from, const Matrix& to, const Event& after,
                  const std::vector<HostTask>& behind) override;
  HostTask AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                 const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                 const std::vector<HostTask>& behind) override;
  void Await(HostTask task) override;
  HostLinkTimes TakeTimes() override;

 protected:
  void* AllocateBytes(int64_t bytes) override { return pool_.Take(bytes); }
  void FreeBytes(void* data, int64_t bytes) override { pool_.Give(data, bytes); }

 private:
  HostTask Post(HostTask::Stream stream, const std::vector<HostTask>& behind, std::function<void()> work);

  const int threads_;
  BlockPool pool_;
  std::array<TaskStream, kHostStreams> streams_;  // end before the pool
  double exposed_ = 0;
};

}  // namespace metp::cpu
