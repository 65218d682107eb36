#include "server/job_service.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/grpc_status.h"
#include "proto/support/version.h"
#include "server/pull_stream.h"
#include "server/trace_session.h"
#include "server/worker_list.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

/// The store refuses: this coordinator answers, but can do nothing.
absl::Status ForClients(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::InternalError(
      absl::StrCat("the coordinator cannot write down what it does, so it does nothing: ", status.message()));
}

/// A stream that ends at once.
template <typename Message>
grpc::ServerWriteReactor<Message>* Refuse(ChangeHub& changes, const absl::Status& refusal) {
  return PullStream<Message>::Start(changes, "", [refusal](Message&, absl::Status& status) {
    status = refusal;
    return Pulled::kEnd;
  });
}

}  // namespace

grpc::ServerUnaryReactor* JobService::Submit(grpc::CallbackServerContext* context,
                                             const v1::SubmitRequest* request, v1::SubmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto answer = [reactor, response](absl::StatusOr<v1::JobStatus> status) {
    const absl::Status outcome = status.status();
    if (outcome.ok()) *response->mutable_status() = *std::move(status);
    reactor->Finish(ToGrpc(outcome));
  };
  loop_.Post([this, context, request, answer](Controller& controller) {
    absl::StatusOr<Controller::Submission> received =
        controller.BeginSubmit(request->request_id(), request->job());
    if (!received.ok()) return answer(received.status());
    if (received->repeated) return answer(*std::move(received->repeated));
    const v1::JobSpec job = received->job;
    const auto wanted = [context] { return !context->IsCancelled(); };
    const auto planned = [this, request, answer, job](absl::StatusOr<Choice> choice) {
      if (!choice.ok()) return answer(choice.status());
      loop_.Post([request, answer, job, choice = *std::move(choice)](Controller& controller) {
        absl::StatusOr<v1::JobStatus> status = controller.Submit(request->request_id(), job, choice);
        answer(status.ok() ? std::move(status) : ForClients(status.status()));
      });
    };
    desk_.Post(job, std::move(received->workers), wanted, planned);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([reactor, request, response](Controller& controller) {
    absl::StatusOr<v1::JobStatus> status = controller.Cancel(request->job());
    const absl::Status outcome = ForClients(status.status());
    if (outcome.ok()) *response = *std::move(status);
    reactor->Finish(ToGrpc(outcome));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request, v1::JobStatus* response) {
  const absl::StatusOr<std::string> id = jobs_.Find(request->job());
  if (!id.ok()) return Finish(context, id.status());
  absl::StatusOr<v1::JobStatus> status = jobs_.Get(*id);
  const absl::Status outcome = status.status();
  if (outcome.ok()) *response = *std::move(status);
  return Finish(context, outcome);
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  int64_t after = 0;
  if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &after)) {
    return Finish(context,
                  absl::InvalidArgumentError(absl::StrCat("page_token: found '", request->page_token(),
                                                          "', expected one that this call gave")));
  }
  for (v1::JobRecord& record : jobs_.List(after, config_.jobs_per_page)) {
    after = record.sequence();
    *response->add_jobs() = std::move(*record.mutable_status());
  }
  if (response->jobs_size() == config_.jobs_per_page) response->set_next_page_token(absl::StrCat(after));
  return Finish(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::WatchJobUpdate>* JobService::WatchJob(grpc::CallbackServerContext* context,
                                                                   const v1::WatchJobRequest* request) {
  const absl::StatusOr<std::string> id = jobs_.Find(request->job());
  if (!id.ok()) return Refuse<v1::WatchJobUpdate>(changes_, id.status());
  struct Cursor {
    int step = 0;
    uint64_t version = 0;
    bool first = true, last = false;
  };
  auto source = [this, id = *id, cursor = Cursor{.step = request->after_step()}](
                    v1::WatchJobUpdate& update, absl::Status& status) mutable {
    if (cursor.last) return Pulled::kEnd;
    absl::StatusOr<JobTable::Update> read = jobs_.Read(id, cursor.step, config_.steps_per_message);
    if (!read.ok()) {
      status = read.status();
      return Pulled::kEnd;
    }
    if (!cursor.first && read->version == cursor.version && read->steps.empty()) return Pulled::kNothingYet;
    cursor.first = false;
    cursor.version = read->version;
    cursor.last = IsTerminal(read->status.state()) && !read->more;
    if (!read->steps.empty()) cursor.step = read->steps.back().step();
    *update.mutable_status() = std::move(read->status);
    update.mutable_steps()->Add(read->steps.begin(), read->steps.end());
    return Pulled::kMessage;
  };
  return PullStream<v1::WatchJobUpdate>::Start(changes_, *id, std::move(source));
}

grpc::ServerWriteReactor<v1::LogChunk>* JobService::WatchLogs(grpc::CallbackServerContext* context,
                                                              const v1::WatchLogsRequest* request) {
  const absl::StatusOr<std::string> id = jobs_.Find(request->job());
  if (!id.ok()) return Refuse<v1::LogChunk>(changes_, id.status());
  std::optional<int> rank;
  if (request->has_rank()) {
    rank = request->rank();
    const absl::StatusOr<v1::JobStatus> job = jobs_.Get(*id);
    if (job.ok() && (*rank < 0 || *rank >= RanksOf(job->plan()))) {
      return Refuse<v1::LogChunk>(
          changes_, absl::NotFoundError(absl::StrCat("rank: found ", *rank, ", expected 0 to ",
                                                     RanksOf(job->plan()) - 1, ", the ranks of ", *id)));
    }
  }
  auto source = [this, id = *id, rank, follow = request->follow(), offset = request->offset()](
                    v1::LogChunk& chunk, absl::Status& status) mutable {
    absl::StatusOr<JobTable::LogUpdate> update =
        jobs_.ReadLog(id, offset, rank, config_.bytes_per_message, /*stored=*/follow);
    if (!update.ok()) {
      status = update.status();
      return Pulled::kEnd;
    }
    LogRing::Read& read = update->read;
    offset = read.next;
    if (read.lines.empty() && read.dropped == 0) {
      return update->terminal || !follow ? Pulled::kEnd : Pulled::kNothingYet;
    }
    chunk.set_dropped(read.dropped);
    chunk.set_next_offset(read.next);
    chunk.mutable_lines()->Add(read.lines.begin(), read.lines.end());
    return Pulled::kMessage;
  };
  return PullStream<v1::LogChunk>::Start(changes_, *id, std::move(source));
}

grpc::ServerUnaryReactor* JobService::ListEvents(grpc::CallbackServerContext* context,
                                                 const v1::ListEventsRequest* request,
                                                 v1::ListEventsResponse* response) {
  const absl::StatusOr<std::string> id = jobs_.Find(request->job());
  if (!id.ok()) return Finish(context, id.status());
  absl::StatusOr<std::vector<v1::JobEvent>> events = jobs_.Events(*id);
  if (!events.ok()) return Finish(context, events.status());
  response->set_id(*id);
  for (v1::JobEvent& event : *events) *response->add_events() = std::move(event);
  return Finish(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::TraceChunk>* JobService::TraceJob(grpc::CallbackServerContext* context,
                                                               const v1::TraceJobRequest* request) {
  const absl::StatusOr<std::string> id = jobs_.Find(request->job());
  if (!id.ok()) return Refuse<v1::TraceChunk>(changes_, id.status());
  if (request->steps() < 1 || request->steps() > kMostTracedSteps) {
    return Refuse<v1::TraceChunk>(
        changes_, absl::InvalidArgumentError(
                      absl::StrCat("steps: found ", request->steps(), ", expected 1 to ", kMostTracedSteps)));
  }
  const auto session = std::make_shared<TraceSession>(changes_, *id, request->steps());
  loop_.Post([id = *id, asked = std::weak_ptr(session)](Controller& controller) {
    if (const auto session = asked.lock()) controller.Trace(id, session);
  });
  // The stream's end frees the job for other traces.
  auto source = [this, session](v1::TraceChunk& chunk, absl::Status& status) {
    switch (session->Take(config_.bytes_per_message, chunk, status)) {
      case TraceSession::Taken::kChunk:
        return Pulled::kMessage;
      case TraceSession::Taken::kNothingYet:
        return Pulled::kNothingYet;
      default:
        return Pulled::kEnd;
    }
  };
  return PullStream<v1::TraceChunk>::Start(changes_, TraceSession::KeyOf(*id), std::move(source));
}

grpc::ServerUnaryReactor* JobService::ListWorkers(grpc::CallbackServerContext* context,
                                                  const v1::ListWorkersRequest* request,
                                                  v1::ListWorkersResponse* response) {
  for (v1::WorkerStatus& worker : WorkersWithRanks(workers_, jobs_))
    *response->add_workers() = std::move(worker);
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobService::DrainWorker(grpc::CallbackServerContext* context,
                                                  const v1::DrainWorkerRequest* request,
                                                  v1::WorkerStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, reactor, request, response](Controller& controller) {
    const absl::Status drained = controller.Drain(*request);
    for (v1::WorkerStatus& worker : WorkersWithRanks(workers_, jobs_)) {
      if (worker.name() == request->worker()) *response = std::move(worker);
    }
    reactor->Finish(ToGrpc(ForClients(drained)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetServer(grpc::CallbackServerContext* context,
                                                const v1::GetServerRequest* request,
                                                v1::GetServerResponse* response) {
  response->set_version(kVersion);
  response->set_http_url(http_url_);
  return Finish(context, absl::OkStatus());
}

}  // namespace metp
