#pragma once

// A controller with its tables over a store in memory, and worker daemons as it sees them.

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/support/job_file.h"
#include "server/controller.h"
#include "server/invariants.h"
#include "server/store/memory_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/jobs.h"
#include "tests/support/recording_link.h"
#include "tests/support/status_matchers.h"

namespace metp {

class FaultyStore : public MemoryStore {
 public:
  absl::Status Write(const StoreChange& change) override {
    return refuse ? absl::UnavailableError("disk full") : MemoryStore::Write(change);
  }
  bool refuse = false;
};

/// A worker daemon as the controller sees it.
struct Worker {
  std::string name, incarnation = "first";
  int64_t memory_bytes = 0;
  std::string node = {};
  std::optional<v1::DeviceProfile> profile = {};
  v1::JobSpec::Device device = v1::JobSpec::DEVICE_CPU;
  std::shared_ptr<RecordingLink> link;
  Registry::Session session = 0;
  int64_t sequence = 0;
};

class ControllerTest : public ::testing::Test {
 protected:
  void TearDown() override { Check(); }
  void Check() { EXPECT_THAT(invariants_.Check(jobs_.Snapshot()), IsOk()); }

  absl::Status Connect(Worker& worker, const std::vector<std::pair<std::string, int>>& ranks = {}) {
    v1::WorkerHello hello;
    hello.set_name(worker.name);
    hello.set_incarnation(worker.incarnation);
    hello.set_memory_bytes(worker.memory_bytes);
    hello.set_node(worker.node);
    hello.set_device_kind(worker.device);
    if (worker.profile) *hello.mutable_profile() = *worker.profile;
    for (const auto& [attempt, rank] : ranks) {
      v1::RankKey& key = *hello.add_ranks();
      key.set_attempt(attempt);
      key.set_rank(rank);
    }
    worker.link = std::make_shared<RecordingLink>();
    const auto session = controller_.Connect(hello, worker.link);
    if (session.ok()) worker.session = *session;
    controller_.Tick();
    Check();
    return session.status();
  }
  std::vector<Worker> Workers(int count) {
    std::vector<Worker> workers(count);
    for (int i = 0; i < count; ++i) {
      workers[i].name = "cpu-" + std::to_string(i);
      EXPECT_THAT(Connect(workers[i]), IsOk());
      workers[i].link->Take();
    }
    return workers;
  }
  absl::Status Say(Worker& worker, v1::WorkerEvent event, const std::string& attempt, int rank) {
    event.set_sequence(++worker.sequence);
    event.set_attempt(attempt);
    event.set_rank(rank);
    return Repeat(worker, event);
  }
  absl::Status Repeat(Worker& worker, const v1::WorkerEvent& event) {
    v1::FromWorker message;
    *message.mutable_events()->add_events() = event;
    const absl::Status status = controller_.Receive(worker.session, message);
    controller_.Tick();
    Check();
    return status;
  }
  static v1::WorkerEvent Started() {
    v1::WorkerEvent event;
    event.mutable_started()->set_description("runs");
    return event;
  }
  static v1::WorkerEvent Ended(bool done, const std::string& how = "exited with code 0",
                               bool stopped = false) {
    v1::WorkerEvent event;
    if (done) event.mutable_ended()->mutable_result();
    event.mutable_ended()->set_clean(done);
    event.mutable_ended()->set_how(how);
    event.mutable_ended()->set_stopped(stopped);
    return event;
  }
  /// Both halves of a submission, planned in between.
  absl::StatusOr<v1::JobStatus> SubmitJob(const std::string& request, const v1::JobSpec& job) {
    auto begun = controller_.BeginSubmit(request, job);
    if (!begun.ok()) return begun.status();
    if (begun->repeated) return *begun->repeated;
    const auto choice = PlanOn(begun->job, begun->workers);
    if (!choice.ok()) return choice.status();
    return controller_.Submit(request, begun->job, *choice);
  }
  v1::JobStatus Submit(int degree, const std::string& name = "job") {
    const auto status = SubmitJob("request-" + std::to_string(++requests_), SmallJob(name, degree));
    EXPECT_THAT(status, IsOk());
    controller_.Tick();
    Check();
    return *jobs_.Get(status->id());
  }
  v1::JobStatus::State State(const std::string& id) { return jobs_.Get(id)->state(); }
  /// Messages of one kind that the worker got since it was last asked.
  static std::vector<v1::ToWorker> Got(Worker& worker, v1::ToWorker::KindCase kind) {
    std::vector<v1::ToWorker> got;
    for (v1::ToWorker& message : worker.link->Take()) {
      if (message.kind_case() == kind) got.push_back(std::move(message));
    }
    return got;
  }
  void Alive(std::vector<Worker>& workers) {
    v1::FromWorker heartbeat;
    heartbeat.mutable_heartbeat();
    for (Worker& worker : workers) controller_.Receive(worker.session, heartbeat).IgnoreError();
  }

  /// The coordinator dies at once and another one comes up with the same store: new objects in the old ones' places.
  void Restart() {
    std::destroy_at(&controller_);
    std::destroy_at(&workers_);
    std::destroy_at(&jobs_);
    std::construct_at(&jobs_, config_, clock_, store_, changes_);
    std::construct_at(&workers_, config_, clock_);
    std::construct_at(&controller_, config_, jobs_, workers_, store_, clock_);
    controller_.Load(*store_.Load());
    controller_.Tick();
    Check();
  }
  std::vector<int> CurveOf(const std::string& id) {
    std::vector<int> steps;
    const auto update = jobs_.Read(id, 0, 1000);
    EXPECT_THAT(update, IsOk());
    for (const v1::StepPoint& point : update->steps) steps.push_back(point.step());
    return steps;
  }

  CoordinatorConfig config_ = [] {
    CoordinatorConfig config;
    config.flush_interval = std::chrono::milliseconds(0);
    return config;
  }();
  FakeClock clock_;
  FaultyStore store_;
  ChangeHub changes_;
  JobTable jobs_{config_, clock_, store_, changes_};
  Registry workers_{config_, clock_};
  Controller controller_{config_, jobs_, workers_, store_, clock_};
  Invariants invariants_;
  int requests_ = 0;
};

}  // namespace metp
