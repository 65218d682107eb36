#include "server/coordinator.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "proto/support/status_macros.h"
#include "server/http/site.h"

namespace metp {
namespace {

// A frozen peer is noticed after these; clients ping every 10 s at most (client/api.cc,
// worker/daemon/session.cc).
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveTimeoutMs = 5000;
constexpr int kMinPingIntervalMs = 5000;

}  // namespace

Coordinator::Coordinator(CoordinatorConfig config, const Clock& clock, Store& store)
    : config_(std::move(config)),
      clock_(clock),
      jobs_(config_, clock, store, changes_),
      workers_(config_, clock),
      store_(store),
      controller_(config_, jobs_, workers_, store, clock) {}

Coordinator::~Coordinator() { Stop(); }

absl::Status Coordinator::Start() {
  METP_ASSIGN_OR_RETURN(const StoredState state, store_.Load());
  controller_.Load(state);
  METP_RETURN_IF_ERROR(ServeHttp());
  controller_.set_planner(
      [this](v1::JobSpec job, Workers workers, const std::function<void(absl::StatusOr<Choice>)>& done) {
        desk_.Post(
            std::move(job), std::move(workers), [] { return true; },
            [this, done](absl::StatusOr<Choice> choice) {
              loop_->Post([done, choice = std::move(choice)](Controller&) { done(choice); });
            });
      });
  loop_ = std::make_unique<EventLoop>(controller_);
  return ServeGrpc();
}

absl::Status Coordinator::ServeHttp() {
  auto pages = SitePages({.jobs = jobs_,
                          .workers = workers_,
                          .clock = clock_,
                          .coordinator = [this] { return serving_ ? address_ : config_.listen; },
                          .store_writable = [this] { return controller_.store_writable(); },
                          .state_folder = config_.state});
  METP_ASSIGN_OR_RETURN(http_, HttpServer::Start(config_.http, std::move(pages)));
  return absl::OkStatus();
}

absl::Status Coordinator::ServeGrpc() {
  job_service_ = std::make_unique<JobService>(config_, *loop_, desk_, jobs_, workers_, changes_);
  job_service_->set_http_url(absl::StrCat("http://", http_->address()));
  worker_service_ = std::make_unique<WorkerService>(*loop_);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(config_.listen, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.RegisterService(job_service_.get());
  builder.RegisterService(worker_service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", config_.listen,
                                               ": the port is in use, or the host is not this machine"));
  }
  address_ = absl::StrCat(config_.listen.substr(0, config_.listen.rfind(':')), ":", port);
  serving_ = true;
  return absl::OkStatus();
}

void Coordinator::Stop() {
  if (server_ != nullptr) {
    desk_.Stop();      // submissions that wait to be planned are answered: the shutdown waits for them
    changes_.Close();  // ends the watches, which go on with the next coordinator
    workers_.CloseAll(absl::UnavailableError("the coordinator is stopping"));
    server_->Shutdown(std::chrono::system_clock::now() + config_.shutdown_grace);
    server_->Wait();
  }
  if (loop_ != nullptr) loop_->Stop();
  server_.reset();
  http_.reset();
}

std::shared_ptr<grpc::Channel> Coordinator::InProcessChannel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

}  // namespace metp
