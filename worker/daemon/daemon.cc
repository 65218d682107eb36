#include "worker/daemon/daemon.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "proto/support/ids.h"
#include "proto/support/metric_page.h"
#include "proto/support/status_macros.h"
#include "proto/support/version.h"

namespace metp {

Daemon::Daemon(WorkerConfig config, const Clock& clock, const Device& device, std::unique_ptr<GpuWatch> gpu,
               std::optional<v1::DeviceProfile> profile, Events events)
    : config_(std::move(config)),
      clock_(clock),
      events_(std::move(events)),
      device_(device),
      gpu_(std::move(gpu)),
      profile_(std::move(profile)),
      incarnation_(RandomHex(16)),
      outbox_(config_.outbox_bytes),
      metrics_(config_, clock) {
  config_.threads = device_.threads;
  metrics_.ShowMemory(device_.memory_bytes);
  if (gpu_ != nullptr) {
    metrics_.ShowGpu(gpu_->gpu());
    gpu_->OnXid([this](int xid) { metrics_.NoteXid(xid); });
  }
}

Daemon::~Daemon() {
  // No more pushes, then no more listener.
  supervisor_.reset();
  session_.reset();
}

absl::Status Daemon::Start() {
  std::map<std::string, HttpServer::Handler> pages;
  pages["/healthz"] = [](const HttpRequest&) { return HttpPage{.body = "ok\n"}; };
  pages["/metrics"] = [this](const HttpRequest&) {
    return HttpPage{.type = MetricPage::kContentType, .body = metrics_.Text()};
  };
  METP_ASSIGN_OR_RETURN(http_, HttpServer::Start(config_.http, std::move(pages)));
  SessionCallbacks callbacks;
  callbacks.hello = [this] { return Hello(); };
  callbacks.command = [this](v1::ToWorker command) { Carry(std::move(command)); };
  callbacks.welcomed = [this] {
    metrics_.SetConnected(true);
    supervisor_->AskAgain();
    events_.on_welcome();
  };
  callbacks.disconnected = [this](const std::string& why) {
    metrics_.SetConnected(false);
    events_.on_trouble(why);
  };
  session_ = std::make_unique<Session>(config_, clock_, outbox_, std::move(callbacks));
  supervisor_ = std::make_unique<Supervisor>(config_, clock_, outbox_, metrics_, gpu_.get());
  supervisor_->OnGpuLost(events_.on_gpu_lost);
  session_->Start();
  return absl::OkStatus();
}

void Daemon::Leave() {
  supervisor_->Leave();
  session_->Leave();
}

v1::WorkerHello Daemon::Hello() const {
  v1::WorkerHello hello;
  hello.set_name(config_.name);
  hello.set_incarnation(incarnation_);
  hello.set_address(config_.address);
  hello.set_metrics_url(metrics_url());
  hello.set_device(Describe(device_));
  hello.set_device_kind(device_.gpu.empty() ? v1::JobSpec::DEVICE_CPU : v1::JobSpec::DEVICE_GPU);
  hello.set_threads(device_.threads);
  hello.set_memory_bytes(device_.memory_bytes);
  hello.set_version(kVersion);
  hello.set_pid(getpid());
  hello.set_node(config_.node);
  if (profile_) *hello.mutable_profile() = *profile_;
  for (v1::RankKey& key : supervisor_->Ranks()) *hello.add_ranks() = std::move(key);
  for (v1::RankKey& key : outbox_.Ended()) *hello.add_ranks() = std::move(key);
  return hello;
}

void Daemon::Carry(v1::ToWorker command) {
  switch (command.kind_case()) {
    case v1::ToWorker::kStart:
      supervisor_->Start(std::move(*command.mutable_start()));
      break;
    case v1::ToWorker::kStop:
      supervisor_->Stop(std::move(*command.mutable_stop()));
      break;
    case v1::ToWorker::kInterrupt:
      supervisor_->Interrupt(std::move(*command.mutable_interrupt()));
      break;
    case v1::ToWorker::kValue:
      supervisor_->Deliver(std::move(*command.mutable_value()));
      break;
    case v1::ToWorker::kTrace:
      supervisor_->Trace(std::move(*command.mutable_trace()));
      break;
    case v1::ToWorker::kWelcome:
    case v1::ToWorker::kAck:
    case v1::ToWorker::KIND_NOT_SET:
      break;
  }
}

}  // namespace metp
