#include "client/api.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/format.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "metp/v1/job_service.grpc.pb.h"
#include "proto/support/grpc_status.h"
#include "proto/support/ids.h"
#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

constexpr std::chrono::seconds kCallTimeout{10};
constexpr int kSubmitTries = 3;
constexpr std::chrono::milliseconds kRedial{500};
constexpr int kPingMs = 10000;  // finds out about a frozen coordinator under a long watch
constexpr int kPingTimeoutMs = 5000;

std::shared_ptr<grpc::Channel> Dial(const std::string& coordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct Api::Impl {
  std::string coordinator;
  std::chrono::seconds patience;
  std::unique_ptr<v1::JobService::Stub> stub;
  Mutex mutex;
  CondVar interruption;
  bool interrupted METP_GUARDED_BY(mutex) = false;
  grpc::ClientContext* watching METP_GUARDED_BY(mutex) = nullptr;

  /// Reads streams that `open` begins where the last one broke, until `over` says that the last message has come, or nothing
  /// has for so long. The coordinator has answered before.
  template <typename Message, typename Open>
  absl::Status ReadOn(const Open& open, const std::function<void(const Message&)>& on_message,
                      const std::function<bool()>& over) {
    bool told = false;
    auto give_up = std::chrono::steady_clock::now() + patience;
    while (true) {
      const absl::Status status = Read<Message>(open, [&](const Message& message) {
        told = false;
        give_up = std::chrono::steady_clock::now() + patience;
        on_message(message);
      });
      const bool broke = absl::IsUnavailable(status) || (status.ok() && !over());
      if (!broke) return status;
      if (std::chrono::steady_clock::now() >= give_up) {
        return status.ok() ? absl::UnavailableError(
                                 absl::StrCat("the coordinator at ", coordinator, " has ended the watch"))
                           : status;
      }
      if (!told)
        std::fprintf(stderr, "metpctl: the coordinator at %s is away; waiting for it\n", coordinator.c_str());
      told = true;
      const auto redial = std::chrono::steady_clock::now() + kRedial;
      MutexLock lock(mutex);
      while (!interrupted && interruption.WaitUntil(mutex, redial)) {
      }
    }
  }

  absl::Status Explain(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(absl::StrCat("no coordinator answers at ", coordinator, " (",
                                                 status.error_message(),
                                                 "); set --coordinator or METP_COORDINATOR"));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(absl::StrCat("the coordinator at ", coordinator,
                                                      " did not answer within ", kCallTimeout.count(), " s"));
    }
    return FromGrpc(status);
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (!status.ok()) return Explain(status);
    return response;
  }

  /// Reads a stream to its end; Interrupt cancels it.
  template <typename Message, typename Open>
  absl::Status Read(const Open& open, const std::function<void(const Message&)>& on_message) {
    grpc::ClientContext context;
    {
      MutexLock lock(mutex);
      if (interrupted) return absl::CancelledError("interrupted");
      watching = &context;
    }
    const std::unique_ptr<grpc::ClientReader<Message>> reader = open(&context);
    Message message;
    while (reader->Read(&message)) on_message(message);
    const grpc::Status status = reader->Finish();
    MutexLock lock(mutex);
    watching = nullptr;
    if (interrupted) return absl::CancelledError("interrupted");
    return status.ok() ? absl::OkStatus() : Explain(status);
  }
};

Api::Api(const std::string& coordinator, std::chrono::seconds patience) : impl_(std::make_unique<Impl>()) {
  impl_->coordinator = coordinator;
  impl_->patience = patience;
  impl_->stub = v1::JobService::NewStub(Dial(coordinator));
}

Api::~Api() = default;

absl::StatusOr<v1::JobStatus> Api::Submit(const v1::JobSpec& job) {
  v1::SubmitRequest request;
  request.set_request_id(RandomHex(32));
  *request.mutable_job() = job;
  absl::StatusOr<v1::SubmitResponse> response;
  for (int i = 0; i < kSubmitTries; ++i) {
    response = impl_->Call(&v1::JobService::Stub::Submit, request);
    if (!absl::IsUnavailable(response.status()) && !absl::IsDeadlineExceeded(response.status())) break;
  }
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_status());
}

absl::StatusOr<v1::JobStatus> Api::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  return impl_->Call(&v1::JobService::Stub::GetJob, request);
}

absl::StatusOr<std::vector<v1::JobStatus>> Api::ListJobs() {
  std::vector<v1::JobStatus> jobs;
  v1::ListJobsRequest request;
  do {
    METP_ASSIGN_OR_RETURN(v1::ListJobsResponse page, impl_->Call(&v1::JobService::Stub::ListJobs, request));
    for (v1::JobStatus& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::StatusOr<v1::ListEventsResponse> Api::ListEvents(const std::string& job) {
  v1::ListEventsRequest request;
  request.set_job(job);
  return impl_->Call(&v1::JobService::Stub::ListEvents, request);
}

absl::StatusOr<v1::JobStatus> Api::CancelJob(const std::string& job) {
  v1::CancelJobRequest request;
  request.set_job(job);
  return impl_->Call(&v1::JobService::Stub::CancelJob, request);
}

absl::StatusOr<std::vector<v1::WorkerStatus>> Api::ListWorkers() {
  METP_ASSIGN_OR_RETURN(v1::ListWorkersResponse response,
                        impl_->Call(&v1::JobService::Stub::ListWorkers, v1::ListWorkersRequest()));
  return std::vector<v1::WorkerStatus>(response.workers().begin(), response.workers().end());
}

absl::StatusOr<v1::WorkerStatus> Api::DrainWorker(const v1::DrainWorkerRequest& request) {
  return impl_->Call(&v1::JobService::Stub::DrainWorker, request);
}

absl::StatusOr<v1::GetServerResponse> Api::GetServer() {
  absl::StatusOr<v1::GetServerResponse> server =
      impl_->Call(&v1::JobService::Stub::GetServer, v1::GetServerRequest());
  if (server.ok()) server->set_http_url(OpenableUrl(server->http_url(), impl_->coordinator));
  return server;
}

absl::Status Api::WatchJob(const std::string& job,
                           const std::function<void(const v1::WatchJobUpdate&)>& on_update) {
  v1::WatchJobRequest request;
  request.set_job(job);
  bool over = false;
  return impl_->ReadOn<v1::WatchJobUpdate>(
      [&](grpc::ClientContext* context) { return impl_->stub->WatchJob(context, request); },
      [&](const v1::WatchJobUpdate& update) {
        if (update.steps_size() > 0) request.set_after_step(update.steps().rbegin()->step());
        over = update.status().has_finished();
        on_update(update);
      },
      [&] { return over; });
}

absl::Status Api::WatchLogs(const std::string& job, std::optional<int> rank, bool follow,
                            const std::function<void(const v1::LogChunk&)>& on_chunk) {
  METP_ASSIGN_OR_RETURN(const v1::JobStatus known, GetJob(job));  // who is not there at all is not waited for
  v1::WatchLogsRequest request;
  request.set_job(known.id());
  if (rank.has_value()) request.set_rank(*rank);
  request.set_follow(follow);
  return impl_->ReadOn<v1::LogChunk>(
      [&](grpc::ClientContext* context) { return impl_->stub->WatchLogs(context, request); },
      [&](const v1::LogChunk& chunk) {
        request.set_offset(chunk.next_offset());
        on_chunk(chunk);
      },
      [] { return true; });  // a stream of output ends in good order only when there is no more
}

absl::Status Api::TraceJob(const std::string& job, int steps, std::chrono::seconds timeout,
                           const std::function<void(const v1::TraceChunk&)>& on_chunk) {
  v1::TraceJobRequest request;
  request.set_job(job);
  request.set_steps(steps);
  return impl_->Read<v1::TraceChunk>(
      [&](grpc::ClientContext* context) {
        context->set_deadline(std::chrono::system_clock::now() + timeout);
        return impl_->stub->TraceJob(context, request);
      },
      on_chunk);
}

void Api::Interrupt() {
  MutexLock lock(impl_->mutex);
  impl_->interrupted = true;
  impl_->interruption.NotifyAll();
  if (impl_->watching != nullptr) impl_->watching->TryCancel();
}

}  // namespace metp
