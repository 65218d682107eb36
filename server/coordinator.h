#pragma once

// Composition root: makes every part of the coordinator, wires them, serves. What happens when is in
// controller.h.

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "proto/support/clock.h"
#include "proto/support/http_server.h"
#include "server/change_hub.h"
#include "server/config.h"
#include "server/controller.h"
#include "server/event_loop.h"
#include "server/job_service.h"
#include "server/job_table.h"
#include "server/registry.h"
#include "server/store/store.h"
#include "server/worker_service.h"

namespace metp {

class Coordinator {
 public:
  /// `clock` and `store` outlive the coordinator.
  Coordinator(CoordinatorConfig config, const Clock& clock, Store& store);
  ~Coordinator();

  /// Loads the store and serves. Unavailable: an address is taken. InvalidArgument: it is no address.
  absl::Status Start();
  /// Ends open calls and stops serving. Ranks train on.
  void Stop();

  /// HOST:PORT with actual ports.
  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_->address(); }
  /// A channel to this coordinator inside this process.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  const JobTable& jobs() const { return jobs_; }
  const Registry& workers() const { return workers_; }

 private:
  absl::Status ServeHttp();
  absl::Status ServeGrpc();

  const CoordinatorConfig config_;
  const Clock& clock_;
  ChangeHub changes_;
  JobTable jobs_;
  Registry workers_;
  Store& store_;
  Controller controller_;
  std::unique_ptr<EventLoop> loop_;
  PlanningDesk desk_;  // goes before the loop, to which it posts
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<WorkerService> worker_service_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::atomic<bool> serving_ = false;  // address_ is set
};

}  // namespace metp
