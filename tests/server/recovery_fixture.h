#pragma once

// Running jobs as the controller sees them, and what befalls them.

#include <algorithm>
#include <functional>

#include "tests/server/controller_fixture.h"

namespace metp {

inline v1::WorkerEvent Step(int rank, int step, double took = 1, double compute = 0.5) {
  v1::WorkerEvent event;
  event.mutable_step()->set_rank(rank);
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(1.0 / step);
  event.mutable_step()->set_step_seconds(took);
  event.mutable_step()->set_tokens(100);
  (*event.mutable_step()->mutable_passes())["mlp.forward"].set_compute_seconds(compute);
  return event;
}

inline v1::WorkerEvent Noted(v1::CheckpointNote::Kind kind, int step,
                             const std::string& text = "/saved/step") {
  v1::WorkerEvent event;
  event.mutable_checkpoint()->set_kind(kind);
  event.mutable_checkpoint()->set_step(step);
  event.mutable_checkpoint()->set_text(text);
  return event;
}

class RecoveryTest : public ControllerTest {
 protected:
  static v1::WorkerEvent Left() {
    v1::WorkerEvent event = Ended(true);
    event.mutable_ended()->mutable_result()->set_interrupted(true);
    event.mutable_ended()->set_left(true);
    return event;
  }
  /// Because a neighbour did.
  static v1::WorkerEvent LeftByItself() {
    v1::WorkerEvent event = Left();
    event.mutable_ended()->set_left(false);
    return event;
  }
  /// What the controller has asked the planner for.
  struct Order {
    v1::JobSpec job;
    metp::Workers workers;
    std::function<void(absl::StatusOr<Choice>)> done;
  };
  void PlanLater() {
    controller_.set_planner([this](const v1::JobSpec& job, const metp::Workers& there,
                                   const std::function<void(absl::StatusOr<Choice>)>& done) {
      orders_.push_back({job, there, done});
    });
  }
  /// A running job over these workers.
  std::string Running(std::vector<Worker>& workers, int max_restarts = 3, int min_degree = 0,
                      int steps = 10) {
    v1::JobSpec job = SmallJob("job", static_cast<int>(workers.size()), steps);
    job.set_max_restarts(max_restarts);
    if (min_degree > 0) job.mutable_parallel()->set_min_degree(min_degree);
    job.mutable_checkpoint()->set_directory("/saved");
    const auto status = SubmitJob("request-" + std::to_string(++requests_), job);
    EXPECT_THAT(status, IsOk());
    controller_.Tick();
    Start(workers, status->id() + "/1");
    return status->id();
  }
  void Start(std::vector<Worker>& workers, const std::string& attempt) {
    for (size_t r = 0; r < workers.size(); ++r)
      EXPECT_THAT(Say(workers[r], Started(), attempt, static_cast<int>(r)), IsOk());
    EXPECT_EQ(State(JobOfAttempt(attempt)), v1::JobStatus::RUNNING);
  }
  void Steps(std::vector<Worker>& workers, const std::string& attempt, int step) {
    for (size_t r = 0; r < workers.size(); ++r)
      EXPECT_THAT(Say(workers[r], Step(static_cast<int>(r), step), attempt, static_cast<int>(r)), IsOk());
  }
  /// Rank 0 is killed, the others stop as they are told.
  void Die(std::vector<Worker>& workers, const std::string& attempt) {
    EXPECT_THAT(Say(workers[0], Ended(false, "killed by signal 9 (SIGKILL)"), attempt, 0), IsOk());
    for (size_t r = 1; r < workers.size(); ++r)
      EXPECT_THAT(
          Say(workers[r], Ended(false, "killed by signal 2 (SIGINT)", true), attempt, static_cast<int>(r)),
          IsOk());
  }
  /// Time passes for those who are heard.
  void Pass(Clock::Duration time, std::vector<Worker>& heard) {
    for (const Clock::Time end = clock_.Now() + time; clock_.Now() < end;) {
      clock_.Advance(std::min<Clock::Duration>(std::chrono::seconds(1), end - clock_.Now()));
      Alive(heard);
      controller_.Tick();
      Check();
    }
  }
  std::vector<std::string> Events(const std::string& id, v1::JobEvent::Kind kind) {
    std::vector<std::string> texts;
    const auto events = jobs_.Events(id);
    EXPECT_THAT(events, IsOk());
    for (const v1::JobEvent& event : *events) {
      if (event.kind() == kind) texts.push_back(event.text());
    }
    return texts;
  }
  std::string Reason(const std::string& id) { return jobs_.Get(id)->reason(); }

  std::vector<Order> orders_;
};

}  // namespace metp
