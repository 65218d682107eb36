#pragma once

// The CPU backend's host link: "device" and host memory are the same kind, the copies are real. With it a machine
// without a GPU runs every path that offload takes.

#include "worker/backend/cpu/block_pool.h"
#include "worker/backend/cpu/copy_stream.h"
#include "worker/backend/host_link.h"

namespace metp::cpu {

class CpuHostLink final : public HostLink {
 public:
  CopyId CopyOut(const Matrix& from, const HostBlock& to, const Event&) override {
    return {false, out_.Post(from.data, to.data(), from.bytes())};
  }
  CopyId CopyIn(const HostBlock& from, const Matrix& to, const Event&) override {
    return {true, in_.Post(from.data(), to.data, to.bytes())};
  }
  void Await(CopyId copy) override { exposed_ += (copy.in ? in_ : out_).Await(copy.number); }
  HostLinkTimes TakeTimes() override {
    return {in_.TakeSeconds() + out_.TakeSeconds(), std::exchange(exposed_, 0)};
  }

 protected:
  void* AllocateBytes(int64_t bytes) override { return pool_.Take(bytes); }
  void FreeBytes(void* data, int64_t bytes) override { pool_.Give(data, bytes); }

 private:
  BlockPool pool_;
  CopyStream out_, in_;  // end before the pool
  double exposed_ = 0;
};

}  // namespace metp::cpu
