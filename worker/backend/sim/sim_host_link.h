#pragma once

// The simulated host link: three streams with a clock each, copies at the rate of the profile's host_link, updates at
// that of its host memory.

#include <array>
#include <vector>

#include "worker/backend/host_link.h"
#include "worker/backend/sim/cost_model.h"

namespace metp::sim {

class SimBackend;

class SimHostLink final : public HostLink {
 public:
  SimHostLink(SimBackend& backend, const v1::DeviceProfile& profile)
      : backend_(backend),
        link_(profile.host_link()),
        host_bytes_per_second_(profile.host_bytes_per_second()) {}

  HostTask CopyOut(const Matrix& from, const HostBlock& to, const Event& after,
                   const std::vector<HostTask>& behind) override;
  HostTask CopyIn(const HostBlock& from, const Matrix& to, const Event& after,
                  const std::vector<HostTask>& behind) override;
  HostTask AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                 const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                 const std::vector<HostTask>& behind) override;
  void Await(HostTask task) override;
  HostLinkTimes TakeTimes() override { return std::exchange(times_, {}); }

 protected:
  void* AllocateBytes(int64_t) override { return this; }  // never looked at
  void FreeBytes(void*, int64_t) override {}

 private:
  struct Stream {
    double free = 0;           // when all that was posted is done
    std::vector<double> done;  // by number
  };
  double DoneAt(HostTask task) const {
    return task.number == 0 ? 0 : streams_[task.stream].done.at(task.number - 1);
  }
  HostTask Post(HostTask::Stream stream, double after, const std::vector<HostTask>& behind, double seconds);

  SimBackend& backend_;
  const v1::Link link_;
  const double host_bytes_per_second_;
  std::array<Stream, kHostStreams> streams_;
  HostLinkTimes times_;
};

}  // namespace metp::sim
