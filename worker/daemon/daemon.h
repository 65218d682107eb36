#pragma once

// Composition root of metp-worker: device, supervisor, session, metrics.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/support/clock.h"
#include "proto/support/http_server.h"
#include "proto/support/names.h"
#include "worker/daemon/config.h"
#include "worker/daemon/device.h"
#include "worker/daemon/gpu_watch.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/outbox.h"
#include "worker/daemon/session.h"
#include "worker/daemon/supervisor.h"

namespace metp {

class Daemon {
 public:
  /// `on_welcome`: the coordinator has taken this worker in, first time or again; `on_trouble`: why it is
  /// without one. Both on other threads.
  struct Events {
    std::function<void()> on_welcome;
    std::function<void(const std::string&)> on_trouble;
    /// The GPU does not answer: nothing runs here any more, and the worker had better leave. Perhaps repeatedly.
    std::function<void(const std::string&)> on_gpu_lost = [](const std::string&) {};
  };
  /// `gpu`: that of `device`, or null. `profile` as ProfileOfThisWorker gave it.
  Daemon(WorkerConfig config, const Clock& clock, const Device& device, std::unique_ptr<GpuWatch> gpu,
         std::optional<v1::DeviceProfile> profile, Events events);
  ~Daemon();

  /// Serves metrics and dials. Unavailable: the HTTP address is taken.
  absl::Status Start();
  /// Stops the ranks, tells the coordinator, leaves.
  void Leave();

  std::string metrics_url() const {
    return "http://" + AnnouncedAddress(http_->address(), config_.address) + "/metrics";
  }

 private:
  v1::WorkerHello Hello() const;
  void Carry(v1::ToWorker command);

  WorkerConfig config_;
  const Clock& clock_;
  const Events events_;
  const Device device_;
  const std::unique_ptr<GpuWatch> gpu_;
  const std::optional<v1::DeviceProfile> profile_;
  const std::string incarnation_;
  Outbox outbox_;
  WorkerMetrics metrics_;
  std::unique_ptr<HttpServer> http_;
  // In this order: the session is gone before the supervisor that it commands.
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Session> session_;
};

}  // namespace metp
