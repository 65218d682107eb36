#pragma once

// The simulated host link: two streams with a clock each, at the rate of the profile's host_link.

#include <vector>

#include "worker/backend/host_link.h"
#include "worker/backend/sim/cost_model.h"

namespace metp::sim {

class SimBackend;

class SimHostLink final : public HostLink {
 public:
  SimHostLink(SimBackend& backend, const v1::Link& link) : backend_(backend), link_(link) {}

  CopyId CopyOut(const Matrix& from, const HostBlock&, const Event& after) override {
    return {false, Post(out_, from.bytes(), after)};
  }
  CopyId CopyIn(const HostBlock&, const Matrix& to, const Event& after) override {
    return {true, Post(in_, to.bytes(), after)};
  }
  void Await(CopyId copy) override;
  HostLinkTimes TakeTimes() override { return std::exchange(times_, {}); }

 protected:
  void* AllocateBytes(int64_t) override { return this; }  // never looked at
  void FreeBytes(void*, int64_t) override {}

 private:
  struct Stream {
    double free = 0;           // when all that was posted is done
    std::vector<double> done;  // by number
  };
  uint64_t Post(Stream& stream, int64_t bytes, const Event& after);

  SimBackend& backend_;
  const v1::Link link_;
  Stream out_, in_;
  HostLinkTimes times_;
};

}  // namespace metp::sim
