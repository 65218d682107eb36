#include "server/controller.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/job_file.h"
#include "proto/support/names.h"
#include "proto/support/status_macros.h"
#include "server/common_profile.h"
#include "server/rank_end.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

bool Names(const v1::WorkerHello& hello, const std::string& attempt, int rank) {
  return std::any_of(hello.ranks().begin(), hello.ranks().end(),
                     [&](const v1::RankKey& key) { return key.attempt() == attempt && key.rank() == rank; });
}

}  // namespace

absl::StatusOr<Controller::Submission> Controller::BeginSubmit(const std::string& request_id,
                                                               v1::JobSpec job) {
  NormalizeJob(job);
  METP_RETURN_IF_ERROR(ValidateJob(job));
  Submission submission;
  absl::StatusOr<v1::JobStatus> repeated = jobs_.Repeated(request_id, job);
  if (repeated.ok()) {
    submission.repeated = *std::move(repeated);
  } else if (!absl::IsNotFound(repeated.status())) {
    return repeated.status();
  }
  submission.workers = WorkersToPlanOn(job.device());
  const auto quota = config_.quotas.find(job.namespace_());
  if (quota != config_.quotas.end() && quota->second < submission.workers.count) {
    submission.workers.count = quota->second;
    submission.workers.limit = "the quota of its namespace";
  }
  submission.job = std::move(job);
  return submission;
}

Workers Controller::WorkersToPlanOn(v1::JobSpec::Device kind) const {
  Workers there;
  there.device = kind;
  std::vector<v1::WorkerStatus> workers = workers_.List();
  std::erase_if(workers, [](const v1::WorkerStatus& worker) {
    return worker.state() == v1::WorkerStatus::LOST || worker.drained();
  });
  const auto gpus = std::count_if(workers.begin(), workers.end(), [](const v1::WorkerStatus& worker) {
    return worker.device_kind() == v1::JobSpec::DEVICE_GPU;
  });
  if (kind != v1::JobSpec::DEVICE_CPU && kind != v1::JobSpec::DEVICE_GPU)
    there.device = gpus > 0 ? v1::JobSpec::DEVICE_GPU : v1::JobSpec::DEVICE_CPU;
  if (there.device == v1::JobSpec::DEVICE_GPU) {
    there.limit = "the number of registered GPU workers";
  } else if (gpus > 0) {
    there.limit = "the number of registered CPU workers";
  }
  std::erase_if(workers,
                [&](const v1::WorkerStatus& worker) { return worker.device_kind() != there.device; });
  there.profile = CommonProfile(workers);
  for (const v1::WorkerStatus& worker : workers) {
    ++there.count;
    there.profiled += worker.has_profile() ? 1 : 0;
    if (worker.memory_bytes() > 0) there.memory_bytes.push_back(worker.memory_bytes());
  }
  std::sort(there.memory_bytes.rbegin(), there.memory_bytes.rend());
  return there;
}

absl::StatusOr<v1::JobStatus> Controller::Submit(const std::string& request_id, const v1::JobSpec& job,
                                                 const Choice& choice) {
  absl::StatusOr<v1::JobStatus> repeated = jobs_.Repeated(request_id, job);
  if (!absl::IsNotFound(repeated.status())) return repeated;
  return jobs_.Add(request_id, job, choice.plan, choice.prediction);
}

absl::StatusOr<v1::JobStatus> Controller::Cancel(const std::string& reference) {
  METP_ASSIGN_OR_RETURN(const std::string id, jobs_.Find(reference));
  return jobs_.Cancel(id);
}

absl::Status Controller::Drain(const v1::DrainWorkerRequest& request) {
  const std::string& name = request.worker();
  if (!workers_.Knows(name) && !(request.undrain() && workers_.IsDrained(name))) {
    return absl::NotFoundError(absl::StrCat("no worker '", name, "'; `metpctl workers` lists them"));
  }
  METP_RETURN_IF_ERROR(store_.Write({.drains = {{name, !request.undrain(), request.reason()}}}));
  workers_.SetDrained(name, !request.undrain(), request.reason());
  evicting_.erase(name);
  if (request.undrain() || !request.evict()) return absl::OkStatus();
  evicting_.insert(name);
  Evict(name);
  return absl::OkStatus();
}

void Controller::Evict(const std::string& worker) {
  if (evicting_.count(worker) == 0) return;
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.worker != worker || rank.stop_sent) continue;
    v1::ToWorker message;
    message.mutable_interrupt()->set_attempt(rank.attempt);
    message.mutable_interrupt()->set_rank(rank.rank);
    message.mutable_interrupt()->set_reason("its worker is drained");
    evicted_.insert({rank.attempt, rank.rank});
    workers_.Send(worker, std::move(message));
  }
}

absl::StatusOr<Registry::Session> Controller::Connect(const v1::WorkerHello& hello,
                                                      std::shared_ptr<WorkerLink> link) {
  if (const std::string error = NameError(hello.name()); !error.empty()) {
    return absl::InvalidArgumentError("the worker's name: " + error);
  }
  METP_ASSIGN_OR_RETURN(const Registry::Connected connected, workers_.Connect(hello, std::move(link)));
  const std::string& name = hello.name();
  if (connected.replaced != nullptr) {
    connected.replaced->Close(
        absl::AbortedError("this session was replaced by a newer one of the same worker"));
  }
  // First its old ranks, then the new daemon's name for itself: a coordinator that dies between the two finds out again.
  if (connected.restarted) RanksAreGone(name, absl::StrCat("worker ", name, " was restarted"), {});
  if (const absl::Status written = Remember(hello); !written.ok()) {
    workers_.Disconnect(connected.session);
    return written;
  }
  v1::ToWorker welcome;
  welcome.mutable_welcome()->set_acknowledged(connected.acknowledged);
  workers_.Send(name, std::move(welcome));

  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.worker != name) continue;
    const bool there = Names(hello, rank.attempt, rank.rank);
    if (there) {
      BackAgain(rank);
      SendTraceOrder(rank);  // it may not have heard
      if (rank.stop_sent) SendStop(rank);
    } else if (rank.state == v1::RankStatus::ASSIGNED && !rank.stop_sent) {
      // The session broke before the command arrived.
      const absl::StatusOr<v1::JobStatus> status = jobs_.Get(rank.job);
      if (status.ok()) workers_.Send(name, StartCommand(*status, rank.rank));
    } else {
      METP_RETURN_IF_ERROR(Gone(rank.attempt, rank.rank,
                                {EndKind::kDeath, absl::StrCat("rank ", rank.rank, " on worker ", name,
                                                               ": its worker has it no more")}));
    }
  }
  Evict(name);  // it may not have heard
  for (const v1::RankKey& key : hello.ranks()) {
    const absl::Status live = jobs_.CheckLive(key.attempt(), key.rank());
    if (!live.ok()) StopStale(name, key.attempt(), key.rank(), std::string(live.message()));
  }
  return connected.session;
}

absl::Status Controller::Receive(Registry::Session session, const v1::FromWorker& message) {
  if (!workers_.Heard(session)) {
    return absl::FailedPreconditionError("this session has been replaced or its lease is over; dial again");
  }
  const std::string name = workers_.NameOf(session);
  if (message.has_leave()) {
    RanksAreGone(name, absl::StrCat("worker ", name, " has left"),
                 {.if_told = EndKind::kStopped, .otherwise = EndKind::kInterrupted});
    workers_.Remove(session);
    return absl::OkStatus();
  }
  for (const v1::WorkerEvent& event : message.events().events()) {
    if (event.sequence() <= workers_.Taken(session)) continue;
    METP_RETURN_IF_ERROR(Apply(name, event));
    workers_.Take(session, event.sequence());
  }
  return absl::OkStatus();  // acknowledged by Tick, when it is written
}

absl::Status Controller::Apply(const std::string& worker, const v1::WorkerEvent& event) {
  const std::string& attempt = event.attempt();
  const int rank = event.rank();
  absl::Status status = jobs_.CheckLive(attempt, rank);
  if (status.ok()) {
    std::vector<RendezvousTable::Answer> answers;
    switch (event.kind_case()) {
      case v1::WorkerEvent::kSpawned:
        status = jobs_.RankSpawned(attempt, rank, event.spawned().pid());
        break;
      case v1::WorkerEvent::kStarted:
        status = jobs_.RankStarted(attempt, rank, event.started().description());
        break;
      case v1::WorkerEvent::kPut:
        status = rendezvous_.Put(attempt, event.put().key(), event.put().value(), answers);
        if (status.ok()) {
          status = jobs_.NoteRendezvous(attempt, rank, event.put().key(), event.put().value());
        } else {
          status =
              jobs_.AppendOutput(attempt, rank, {absl::StrCat("[", std::string(status.message()), "]")}, 0);
        }
        break;
      case v1::WorkerEvent::kGet:
        rendezvous_.Get(attempt, rank, event.get().key(), answers);
        break;
      case v1::WorkerEvent::kLink:
        NoteLink(worker, attempt, rank, event.link());
        break;
      case v1::WorkerEvent::kStep:
        status = jobs_.Report(attempt, event.step());
        if (status.ok()) hangs_.Step(attempt, event.step().step(), event.step().step_seconds(), clock_.Now());
        break;
      case v1::WorkerEvent::kCheckpoint:
        status = jobs_.NoteCheckpoint(attempt, rank, event.checkpoint());
        if (event.checkpoint().kind() == v1::CheckpointNote::WAITING) hangs_.Waits(attempt, clock_.Now());
        break;
      case v1::WorkerEvent::kTrace:
        TakeTrace(attempt, event.trace());
        break;
      case v1::WorkerEvent::kOutput:
        status =
            jobs_.AppendOutput(attempt, rank, {event.output().lines().begin(), event.output().lines().end()},
                               event.output().dropped());
        break;
      case v1::WorkerEvent::kEnded:
        if (event.ended().has_result()) {
          jobs_.SetMeasured(attempt, rank, event.ended().result().sgemm_flops_per_second()).IgnoreError();
        }
        // Before its job can start again. A rank that we have evicted says nothing of its worker.
        if (evicted_.erase({attempt, rank}) == 0 && event.ended().left()) workers_.SetLeaving(worker);
        status = Gone(attempt, rank, Explain(worker, rank, event.ended()));
        break;
      case v1::WorkerEvent::KIND_NOT_SET:
        break;
    }
    AnswerGets(worker, attempt, answers);
  }
  if (event.has_ended()) workers_.ClearStale(worker, {attempt, rank});
  if (absl::IsFailedPrecondition(status)) {
    // Of an attempt that is over: refused, and not to be sent again.
    if (!event.has_ended()) StopStale(worker, attempt, rank, std::string(status.message()));
    return absl::OkStatus();
  }
  return status;
}

void Controller::NoteLink(const std::string& worker, const std::string& attempt, int rank,
                          const v1::Link& link) {
  const absl::StatusOr<v1::JobStatus> status = jobs_.Get(JobOfAttempt(attempt));
  if (!status.ok()) return;
  const int p = status->plan().degree(), first = rank / p * p;
  bool across = false;
  for (const int neighbour : {first + (rank + 1) % p, first + (rank + p - 1) % p}) {
    if (neighbour < status->ranks_size())
      across = across || workers_.NodeOf(status->ranks(neighbour).worker()) != workers_.NodeOf(worker);
  }
  workers_.SetLink(worker, link, across);
}

void Controller::AnswerGets(const std::string& worker, const std::string& attempt,
                            const std::vector<RendezvousTable::Answer>& answers) {
  if (answers.empty()) return;
  std::map<int, std::string> holders;
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.attempt == attempt) holders[rank.rank] = rank.worker;
  }
  for (const RendezvousTable::Answer& answer : answers) {
    const auto holder = holders.find(answer.rank);
    if (holder == holders.end()) continue;
    v1::ToWorker message;
    message.mutable_value()->set_attempt(attempt);
    message.mutable_value()->set_rank(answer.rank);
    message.mutable_value()->mutable_value()->set_key(answer.key);
    message.mutable_value()->mutable_value()->set_value(answer.value);
    workers_.Send(holder->second, std::move(message));
  }
}

absl::Status Controller::Gone(const std::string& attempt, int rank, const RankEnd& end) {
  METP_RETURN_IF_ERROR(jobs_.RankGone(attempt, rank, end));
  const std::vector<LiveRank> live = jobs_.LiveRanks();
  const bool over =
      std::none_of(live.begin(), live.end(), [&](const LiveRank& r) { return r.attempt == attempt; });
  if (over) {
    rendezvous_.Erase(attempt);
    hangs_.Forget(attempt);
    EndTrace(attempt);
  }
  return absl::OkStatus();
}

void Controller::StopStale(const std::string& worker, const std::string& attempt, int rank,
                           const std::string& why) {
  if (!workers_.AddStale(worker, {attempt, rank})) return;
  LiveRank stale;
  stale.attempt = attempt;
  stale.rank = rank;
  stale.worker = worker;
  stale.reason = why;
  SendStop(stale);
}

void Controller::SendStop(const LiveRank& rank) {
  v1::ToWorker message;
  message.mutable_stop()->set_attempt(rank.attempt);
  message.mutable_stop()->set_rank(rank.rank);
  message.mutable_stop()->set_reason(rank.reason);
  message.mutable_stop()->set_dump(rank.dump);
  workers_.Send(rank.worker, std::move(message));
}

void Controller::Load(const StoredState& state) {
  jobs_.Load(state);
  workers_.Load(state);
  for (const v1::WorkerHello& hello : state.workers) remembered_[hello.name()] = hello.SerializeAsString();
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    hangs_.Begin(rank.attempt, clock_.Now());
    if (!workers_.Knows(rank.worker))
      overdue_[{rank.attempt, rank.rank}] = {rank.worker, "its worker has left", {}};
  }
  for (const StoredJob& job : state.jobs) {
    if (IsTerminal(job.record.status().state())) continue;
    std::vector<RendezvousTable::Answer> nobody;
    for (const auto& [key, value] : job.record.rendezvous())
      rendezvous_.Put(job.record.status().attempt(), key, value, nobody).IgnoreError();
  }
}

absl::Status Controller::Remember(v1::WorkerHello hello) {
  hello.clear_ranks();
  const std::string bytes = hello.SerializeAsString();
  std::string& last = remembered_[hello.name()];
  if (last == bytes) return absl::OkStatus();
  METP_RETURN_IF_ERROR(store_.Write({.workers = {hello}}));
  last = bytes;
  return absl::OkStatus();
}

}  // namespace metp
