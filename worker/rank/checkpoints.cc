#include "worker/rank/checkpoints.h"

#include <chrono>
#include <new>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/model/plan.h"

namespace metp {

namespace {

constexpr size_t kHistoryKept = 10000;    // steps, at least; more than any report waits for
constexpr int kHistoryToldAtOnce = 2000;  // keeps messages under 1 MiB

Parameters::What WhatOf(StateKind kind) {
  return kind == StateKind::kMaster        ? Parameters::kMasters
         : kind == StateKind::kFirstMoment ? Parameters::kFirstMoments
                                           : Parameters::kSecondMoments;
}

/// A rank's state as it was between two steps.
class Snapshot final : public SliceSource {
 public:
  /// `vectors`: also the vectors, which every rank has and one writes.
  Snapshot(const Parameters& parameters, bool vectors)
      : begin_(parameters.own().begin), places_(parameters.layout().Slices(parameters.own(), vectors)) {
    for (const ArenaSlice& place : places_) slices_.push_back(place.slice);
    for (const StateKind kind : kStateKinds)
      copies_[static_cast<int>(kind)] = parameters.CopyOf(WhatOf(kind));
  }
  const std::vector<TensorSlice>& slices() const override { return slices_; }
  void Get(size_t i, StateKind kind, float* to) const override {
    const ArenaSlice& place = places_[i];
    const Parameters::Copy& copy = copies_[static_cast<int>(kind)];
    const float* from =
        place.matrix ? copy.matrices.data() + place.offset - begin_ : copy.vectors.data() + place.offset;
    for (int64_t row = 0; row < place.slice.row.size(); ++row) {
      for (int64_t col = 0; col < place.slice.col.size(); ++col)
        *to++ = from[row * place.row_stride + col * place.col_stride];
    }
  }

 private:
  const int64_t begin_;
  const std::vector<ArenaSlice> places_;
  std::vector<TensorSlice> slices_;
  Parameters::Copy copies_[3];
};

}  // namespace

Checkpoints::Checkpoints(FileSystem& files, const v1::RankStart& start, const RankRings& rings,
                         const Dataset& dataset, std::function<void(const v1::CheckpointNote&)> tell,
                         Unfinished* unfinished)
    : files_(files),
      start_(start),
      rings_(rings),
      dataset_(dataset),
      tell_(std::move(tell)),
      unfinished_(unfinished),
      ranks_(RanksOf(start.plan())) {}

Checkpoints::~Checkpoints() {
  for (const auto* pending : {&writing_, &committing_}) {
    if (*pending != nullptr && (*pending)->thread.joinable()) (*pending)->thread.join();
  }
}

void Checkpoints::Tell(v1::CheckpointNote::Kind kind, int step, const std::string& text, double seconds) {
  v1::CheckpointNote note;
  note.set_kind(kind);
  note.set_step(step);
  note.set_text(text);
  note.set_seconds(seconds);
  tell_(note);
}

absl::Status Checkpoints::Sum(double& a, double& b) {
  double values[2] = {a, b};
  const Matrix matrix{values, 1, 2, 2, DType::kF64};
  METP_RETURN_IF_ERROR(rings_.ring.AllReduce(matrix));
  if (rings_.across != nullptr) METP_RETURN_IF_ERROR(rings_.across->AllReduce(matrix));
  a = values[0];
  b = values[1];
  return absl::OkStatus();
}

absl::Status Checkpoints::Verdict(const absl::Status& mine, absl::Status& verdict) {
  // A loss may be passed over, anything else may not, on any rank.
  double losses = absl::IsDataLoss(mine) || absl::IsNotFound(mine) ? 1 : 0;
  double errors = mine.ok() || losses > 0 ? 0 : 1;
  METP_RETURN_IF_ERROR(Sum(losses, errors));
  verdict = mine;
  if (errors > 0 && (mine.ok() || absl::IsDataLoss(mine) || absl::IsNotFound(mine)))
    verdict = absl::AbortedError("another rank cannot go on from this checkpoint");
  if (errors == 0 && losses > 0 && mine.ok()) verdict = absl::DataLossError("another rank found it broken");
  return absl::OkStatus();
}

absl::StatusOr<int> Checkpoints::Choose(const ParameterLayout& layout) {
  if (!start_.job().has_checkpoint()) return 0;
  const std::string& directory = start_.job().checkpoint().directory();
  TellOnce(v1::CheckpointNote::WAITING, 0, "reading checkpoints");
  // First of all, so that an earlier run which nobody could stop adds and removes nothing while this one looks.
  absl::Status owned = start_.rank() == 0 ? Own() : absl::OkStatus();
  double unused = 0, nothing = 0;
  if (absl::IsFailedPrecondition(owned)) return owned;
  METP_RETURN_IF_ERROR(Sum(unused, nothing));
  METP_ASSIGN_OR_RETURN(const int step, Search(layout));
  if (start_.rank() == 0) {
    const absl::Status aside = SetLaterAside(files_, directory, step);
    if (!aside.ok()) return aside;  // they would be taken for newer than what this run writes
    if (owned.ok()) owned = RemoveUnfinished(files_, directory);
    if (!owned.ok()) Tell(v1::CheckpointNote::FAILED, 0, std::string(owned.message()));
  }
  return step;
}

absl::StatusOr<int> Checkpoints::Search(const ParameterLayout& layout) {
  const v1::CheckpointSpec& spec = start_.job().checkpoint();
  if (spec.resume() == "none") return 0;
  const bool automatic = spec.resume() == "auto";
  std::vector<int> steps;
  if (automatic) {
    METP_ASSIGN_OR_RETURN(steps, CommonSteps());
    if (steps.empty() && start_.saved_step() == 0) return 0;
    if (steps.empty()) {
      return absl::UnavailableError(absl::StrCat(
          "checkpoint.directory: ", spec.directory(), ": found no checkpoint, expected the one of step ",
          start_.saved_step(), ", which this job has written; is the folder there?"));
    }
  }
  const std::vector<ArenaSlice> places = layout.Slices({0, layout.matrix_size()}, /*vectors=*/true);
  std::vector<TensorSlice> slices;
  for (const ArenaSlice& place : places) slices.push_back(place.slice);
  while (true) {
    const std::string folder = automatic ? CheckpointFolder(spec.directory(), steps.front()) : spec.resume();
    absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(files_, folder);
    absl::Status mine = reader.status();
    if (mine.ok()) mine = (*reader)->Check(slices, /*all_names=*/true);
    if (mine.ok()) mine = CheckOrder(**reader);
    absl::Status verdict;
    METP_RETURN_IF_ERROR(Verdict(mine, verdict));
    if (verdict.ok()) {
      chosen_ = *std::move(reader);
      TellOnce(v1::CheckpointNote::RESUMED, chosen_->step(), folder);
      if (start_.rank() == 0) {
        history_ = chosen_->History();
        TellHistory();
      }
      return chosen_->step();
    }
    if (!automatic || !(absl::IsDataLoss(verdict) || absl::IsNotFound(verdict))) return verdict;
    Tell(v1::CheckpointNote::PASSED_OVER, steps.front(), std::string(verdict.message()));
    steps.erase(steps.begin());
    if (steps.empty()) {
      return absl::DataLossError(absl::StrCat(spec.directory(), ": none of its checkpoints is whole; ",
                                              "checkpoint.resume=none begins again at the first step"));
    }
  }
}

absl::StatusOr<std::vector<int>> Checkpoints::CommonSteps() {
  const std::string& directory = start_.job().checkpoint().directory();
  METP_ASSIGN_OR_RETURN(std::vector<int> steps, CompleteCheckpoints(files_, directory));
  const double newest = steps.empty() ? 0 : steps.front();
  double sum = newest, squares = newest * newest;
  METP_RETURN_IF_ERROR(Sum(sum, squares));
  if (squares * ranks_ == sum * sum) return steps;  // exact in doubles: all have the same
  return absl::UnavailableError(
      absl::StrCat("checkpoint.directory: ", directory,
                   ": ranks do not see the same checkpoints; here the newest is of step ", newest,
                   "; expected a folder that all share"));
}

DataOrder Checkpoints::OrderAfter(int step) const {
  const v1::JobSpec& job = start_.job();
  return {int64_t{step} * job.train().sequences_per_step(), job.data().seed(), job.data().sequence_length(),
          dataset_.tokens()};
}

absl::Status Checkpoints::CheckOrder(const CheckpointReader& reader) const {
  const DataOrder found = reader.order(), expected = OrderAfter(reader.step());
  const struct {
    const char* what;
    int64_t found, expected;
  } kinds[] = {{"sequences read (train.sequences_per_step)", found.sequences, expected.sequences},
               {"data.seed", found.seed, expected.seed},
               {"data.sequence_length", found.sequence_length, expected.sequence_length},
               {"tokens in data.source", found.tokens, expected.tokens}};
  for (const auto& kind : kinds) {
    if (kind.found == kind.expected) continue;
    return absl::FailedPreconditionError(absl::StrCat(reader.folder(), ": ", kind.what, ": found ",
                                                      kind.found, " there, and ", kind.expected,
                                                      " in the job"));
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::Load(Parameters& parameters) {
  if (chosen_ == nullptr) return absl::OkStatus();
  const ParameterLayout& layout = parameters.layout();
  const auto read = [&](Range own, StateKind kind) -> absl::StatusOr<Parameters::Copy> {
    Parameters::Copy copy{std::vector<float>(own.size()), std::vector<float>(layout.vector_size())};
    std::vector<float> values;
    for (const ArenaSlice& place : layout.Slices(own, /*vectors=*/true)) {
      values.resize(static_cast<size_t>(place.slice.size()));
      METP_RETURN_IF_ERROR(chosen_->Read(place.slice, kind, values.data()));
      float* to =
          place.matrix ? copy.matrices.data() + place.offset - own.begin : copy.vectors.data() + place.offset;
      const float* from = values.data();
      for (int64_t row = 0; row < place.slice.row.size(); ++row) {
        for (int64_t col = 0; col < place.slice.col.size(); ++col)
          to[row * place.row_stride + col * place.col_stride] = *from++;
      }
    }
    return copy;
  };
  METP_ASSIGN_OR_RETURN(const Parameters::Copy masters, read({0, layout.matrix_size()}, StateKind::kMaster));
  parameters.SetMasters(masters);
  for (const StateKind kind : {StateKind::kFirstMoment, StateKind::kSecondMoment}) {
    METP_ASSIGN_OR_RETURN(const Parameters::Copy moments, read(parameters.own(), kind));
    parameters.SetMoments(WhatOf(kind), moments);
  }
  last_begun_ = chosen_->step();
  chosen_.reset();
  return absl::OkStatus();
}

void Checkpoints::GiveUp(int step, const absl::Status& why) {
  last_failure_ = why;
  Tell(v1::CheckpointNote::FAILED, step, absl::StrCat("not written: ", why.message()));
}

absl::Status Checkpoints::Own() {
  const std::string& directory = start_.job().checkpoint().directory();
  if (claimed_) {
    const absl::Status ours = CheckClaim(files_, directory, start_.attempt());
    if (!absl::IsNotFound(ours)) return ours;  // somebody has removed it all: begun anew
  }
  const absl::Status claimed = ClaimCheckpoints(files_, directory, start_.attempt());
  claimed_ = claimed_ || claimed.ok();
  return claimed;
}

absl::StatusOr<bool> Checkpoints::Begin(int step, const Parameters& parameters) {
  const std::string& directory = start_.job().checkpoint().directory();
  const std::string folder = PartialFolder(directory, step, start_.attempt());
  absl::Status made;
  std::shared_ptr<const Snapshot> snapshot;
  try {
    snapshot = std::make_shared<Snapshot>(parameters, start_.rank() == 0);
  } catch (const std::bad_alloc&) {
    made = absl::ResourceExhaustedError("the host has no memory left for a copy of the state");
  }
  if (made.ok() && start_.rank() == 0) {
    made = Own();
    if (absl::IsFailedPrecondition(made)) return made;
    if (unfinished_ != nullptr) unfinished_->Set(folder);
    if (made.ok()) made = files_.Remove(folder);
    if (made.ok()) made = files_.MakeFolder(folder);
  }
  double failed = made.ok() ? 0 : 1, unused = 0;
  METP_RETURN_IF_ERROR(Sum(failed, unused));
  last_begun_ = step;
  last_failure_ = absl::OkStatus();
  if (failed > 0) {
    if (!made.ok()) GiveUp(step, made);
    return false;
  }
  writing_ = std::make_unique<Writing>();
  writing_->step = step;
  writing_->thread = std::thread([this, folder, snapshot, history = history_, writing = writing_.get()] {
    try {
      writing->status = WriteShard(files_, folder, start_.rank(), ranks_, *snapshot);
      if (writing->status.ok() && start_.rank() == 0) writing->status = WriteHistory(files_, folder, history);
    } catch (const std::exception& error) {
      writing->status = absl::ResourceExhaustedError(absl::StrCat("writing a shard: ", error.what()));
    }
    writing->done = true;
  });
  return true;
}

absl::Status Checkpoints::Finish(bool wait) {
  if (writing_ == nullptr) return absl::OkStatus();
  if (wait) {
    TellOnce(v1::CheckpointNote::WAITING, writing_->step, "writing a checkpoint");
    writing_->thread.join();
  }
  double done = writing_->done ? 1 : 0, failed = writing_->done && !writing_->status.ok() ? 1 : 0;
  METP_RETURN_IF_ERROR(Sum(done, failed));
  if (static_cast<int>(done) < ranks_) return absl::OkStatus();  // later
  if (writing_->thread.joinable()) writing_->thread.join();
  std::unique_ptr<Writing> written = std::move(writing_);
  if (!written->status.ok()) GiveUp(written->step, written->status);
  if (start_.rank() != 0) return absl::OkStatus();
  if (failed == 0) {
    BeginCommit(std::move(written));
  } else {
    files_.Remove(PartialFolder(start_.job().checkpoint().directory(), written->step, start_.attempt()))
        .IgnoreError();
  }
  return absl::OkStatus();
}

void Checkpoints::BeginCommit(std::unique_ptr<Writing> written) {
  written->done = false;
  committing_ = std::move(written);
  committing_->thread = std::thread([this, commit = committing_.get()] {
    const v1::CheckpointSpec& spec = start_.job().checkpoint();
    if (unfinished_ != nullptr && !unfinished_->BeginCommit()) {
      commit->status = absl::CancelledError("this rank is being ended");
      commit->done = true;
      return;
    }
    try {
      commit->status = CommitCheckpoint(files_, spec.directory(), commit->step, start_.attempt(), ranks_,
                                        OrderAfter(commit->step), start_.job(), start_.plan());
      if (commit->status.ok())
        commit->removed = RemoveOldCheckpoints(files_, spec.directory(), commit->step, spec.keep());
    } catch (const std::exception& error) {
      commit->status = absl::ResourceExhaustedError(absl::StrCat("completing a checkpoint: ", error.what()));
    }
    commit->done = true;
  });
}

absl::Status Checkpoints::FinishCommit(bool wait) {
  if (committing_ == nullptr || !(wait || committing_->done)) return absl::OkStatus();
  committing_->thread.join();
  const std::unique_ptr<Writing> commit = std::move(committing_);
  if (absl::IsFailedPrecondition(commit->status)) return commit->status;
  if (!commit->status.ok()) {
    GiveUp(commit->step, commit->status);
    return absl::OkStatus();
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - commit->begun;
  Tell(v1::CheckpointNote::SAVED, commit->step,
       CheckpointFolder(start_.job().checkpoint().directory(), commit->step), taken.count());
  if (!commit->removed.ok())
    Tell(v1::CheckpointNote::FAILED, commit->step,
         absl::StrCat("it is there, but old ones stay: ", commit->removed.message()));
  return absl::OkStatus();
}

void Checkpoints::Remember(const v1::StepReport& report) {
  if (start_.rank() != 0) return;
  v1::StepPoint& point = history_.emplace_back();
  point.set_step(report.step());
  point.set_loss(report.loss());
  point.set_grad_norm(report.grad_norm());
  point.set_learning_rate(report.learning_rate());
  point.set_step_seconds(report.step_seconds());
  point.set_tokens(report.tokens());
  point.set_model_flops(report.model_flops());
  if (history_.size() >= 2 * kHistoryKept)
    history_.erase(history_.begin(), history_.end() - static_cast<std::ptrdiff_t>(kHistoryKept));
}

void Checkpoints::TellHistory() {
  v1::CheckpointNote note;
  note.set_kind(v1::CheckpointNote::HISTORY);
  for (size_t i = 0; i < history_.size(); ++i) {
    *note.add_history() = history_[i];
    if (note.history_size() < kHistoryToldAtOnce && i + 1 < history_.size()) continue;
    tell_(note);
    note.clear_history();
  }
}

absl::StatusOr<double> Checkpoints::AfterStep(const v1::StepReport& report, bool last,
                                              const Parameters& parameters) {
  if (!start_.job().has_checkpoint()) return 0;
  Remember(report);
  const int step = report.step();
  const auto start = std::chrono::steady_clock::now();
  const bool due = step > last_begun_ && (last || step % start_.job().checkpoint().every_steps() == 0);
  METP_RETURN_IF_ERROR(FinishCommit(/*wait=*/false));
  METP_RETURN_IF_ERROR(Finish(/*wait=*/due));
  if (due) {
    METP_RETURN_IF_ERROR(FinishCommit(/*wait=*/true));
    METP_ASSIGN_OR_RETURN(const bool begun, Begin(step, parameters));
    if (begun && last) METP_RETURN_IF_ERROR(Finish(/*wait=*/true));
    if (last) METP_RETURN_IF_ERROR(FinishCommit(/*wait=*/true));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace metp
