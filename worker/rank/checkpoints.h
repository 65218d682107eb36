#pragma once

// A rank's part in the checkpoints of its job: what training goes on from, and what it leaves behind. All ranks call the
// same methods after the same steps; what must be decided together is, by all-reduces of a few numbers.
//
// A checkpoint is a copy of the state, made between two steps, that a thread of its own writes while training goes on. When,
// after a later step, every rank has written its shard, a thread of rank 0 completes it. One that cannot be written is given up and
// said so; training goes on.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/rank.pb.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/model/parameters.h"
#include "worker/rank/run_rank.h"

namespace metp {

class Checkpoints {
 public:
  /// `tell` takes what becomes of checkpoints: from rank 0 what all have in common, from every rank its own troubles.
  /// `start`'s job has a checkpoint section, or nothing is ever done. `unfinished` hears from rank 0 of the folder that is being
  /// written. All must outlive this.
  Checkpoints(FileSystem& files, const v1::RankStart& start, const RankRings& rings, const Dataset& dataset,
              std::function<void(const v1::CheckpointNote&)> tell, Unfinished* unfinished = nullptr);
  /// Waits for the thread; what it wrote and nobody completed stays as an unfinished folder.
  ~Checkpoints();

  /// Chooses what to go on from, before anything is allocated; 0: there is none. Broken ones are passed over, and said so;
  /// whatever is of a later step is set aside. DataLoss: there are some, and none is whole: only the user may decide to
  /// begin anew. Unavailable: ranks do not see the same ones, or not the one that an earlier attempt has written.
  /// FailedPrecondition: it is of another model or another order of the data, naming both sides; NotFound or DataLoss: the
  /// one that the job names is not there, or broken.
  absl::StatusOr<int> Choose(const ParameterLayout& layout);
  /// The state that was chosen.
  absl::Status Load(Parameters& parameters);

  /// After every step, with its report; `last`: of this run, and nothing is left to be written when it returns. Seconds that
  /// training stood still. An error of the ring; or FailedPrecondition: another run has taken the directory over.
  absl::StatusOr<double> AfterStep(const v1::StepReport& report, bool last, const Parameters& parameters);
  /// Of the newest checkpoint that this rank had a part in; OK: it is written, or being written.
  const absl::Status& last_failure() const { return last_failure_; }

 private:
  struct Writing {
    int step = 0;
    std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
    std::thread thread;
    std::atomic<bool> done = false;
    absl::Status status;   // once done
    absl::Status removed;  // of a commit: whether old checkpoints have gone
  };
  absl::StatusOr<int> Search(const ParameterLayout& layout);
  /// The complete ones that this rank sees, newest first; the newest must be what all see.
  absl::StatusOr<std::vector<int>> CommonSteps();
  DataOrder OrderAfter(int step) const;
  absl::Status CheckOrder(const CheckpointReader& reader) const;
  /// Sums over all ranks.
  absl::Status Sum(double& a, double& b);
  /// `verdict`: what all ranks go by: OK if all are, otherwise the own error, or that another rank has one.
  absl::Status Verdict(const absl::Status& mine, absl::Status& verdict);
  /// False: it was given up.
  absl::StatusOr<bool> Begin(int step, const Parameters& parameters);
  /// Completes what all ranks have written, or gives it up; `wait`: until they have.
  absl::Status Finish(bool wait);
  void GiveUp(int step, const absl::Status& why);
  void Remember(const v1::StepReport& report);
  /// Tells what rank 0 remembers of steps before the one that training goes on from.
  void TellHistory();
  /// Rank 0 claims the directory, or sees that it is still this run's.
  absl::Status Own();
  /// Rank 0 commits what all have written, on a thread of its own; when that is done, or `wait`, it is told.
  /// FailedPrecondition: another run has taken the directory over.
  void BeginCommit(std::unique_ptr<Writing> written);
  absl::Status FinishCommit(bool wait);
  void Tell(v1::CheckpointNote::Kind kind, int step, const std::string& text, double seconds = 0);
  void TellOnce(v1::CheckpointNote::Kind kind, int step, const std::string& text, double seconds = 0) {
    if (start_.rank() == 0) Tell(kind, step, text, seconds);
  }

  FileSystem& files_;
  const v1::RankStart& start_;
  const RankRings& rings_;
  const Dataset& dataset_;
  const std::function<void(const v1::CheckpointNote&)> tell_;
  Unfinished* const unfinished_;
  const int ranks_;
  std::unique_ptr<CheckpointReader> chosen_;
  std::unique_ptr<Writing> writing_, committing_;
  std::vector<v1::StepPoint> history_;  // rank 0: the last steps, for whom reports of them were lost
  int last_begun_ = 0;
  bool claimed_ = false;
  absl::Status last_failure_;  // of this rank, in the newest checkpoint
};

}  // namespace metp
