#include "worker/rank/checkpoints.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/model/plan.h"

namespace metp {

namespace {

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
                         std::function<void(const std::string&)> log)
    : files_(files), start_(start), rings_(rings), log_(std::move(log)), ranks_(RanksOf(start.plan())) {}

Checkpoints::~Checkpoints() {
  if (writing_ != nullptr && writing_->thread.joinable()) writing_->thread.join();
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
  METP_ASSIGN_OR_RETURN(const int step, Search(layout));
  if (start_.rank() == 0) {
    const absl::Status aside = SetLaterAside(files_, start_.job().checkpoint().directory(), step);
    if (!aside.ok()) log_(absl::StrCat("checkpoints of later steps stay where they are: ", aside.message()));
  }
  return step;
}

absl::StatusOr<int> Checkpoints::Search(const ParameterLayout& layout) {
  const v1::CheckpointSpec& spec = start_.job().checkpoint();
  if (spec.resume() == "none") return 0;
  const bool automatic = spec.resume() == "auto";
  std::vector<int> steps;
  if (automatic) {
    METP_ASSIGN_OR_RETURN(steps, CompleteCheckpoints(files_, spec.directory()));
  }
  const std::vector<ArenaSlice> places = layout.Slices({0, layout.matrix_size()}, /*vectors=*/true);
  std::vector<TensorSlice> slices;
  for (const ArenaSlice& place : places) slices.push_back(place.slice);
  while (true) {
    std::string folder = spec.resume();
    if (automatic) {
      // The first rank's newest is looked at by all: a shared folder may show one later than another.
      double step = start_.rank() == 0 && !steps.empty() ? steps.front() : 0, unused = 0;
      METP_RETURN_IF_ERROR(Sum(step, unused));
      if (step == 0) return 0;
      folder = CheckpointFolder(spec.directory(), static_cast<int>(step));
    }
    absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(files_, folder);
    absl::Status mine = reader.status();
    if (mine.ok()) mine = (*reader)->Check(slices, /*all_names=*/true);
    if (mine.ok()) {
      const int64_t expected = int64_t{(*reader)->step()} * start_.job().train().sequences_per_step();
      if ((*reader)->sequences() != expected) {
        mine = absl::FailedPreconditionError(absl::StrCat(
            folder, ": after step ", (*reader)->step(), " it has read ", (*reader)->sequences(),
            " sequences, and the job would have read ", expected, " (train.sequences_per_step)"));
      }
    }
    absl::Status verdict;
    METP_RETURN_IF_ERROR(Verdict(mine, verdict));
    if (verdict.ok()) {
      chosen_ = *std::move(reader);
      if (start_.rank() == 0) log_(absl::StrCat("going on from ", folder));
      return chosen_->step();
    }
    if (!automatic || !(absl::IsDataLoss(verdict) || absl::IsNotFound(verdict))) return verdict;
    log_(absl::StrCat("passing over a broken checkpoint: ", verdict.message()));
    if (!steps.empty()) steps.erase(steps.begin());
  }
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

absl::StatusOr<bool> Checkpoints::Begin(int step, const Parameters& parameters) {
  const std::string folder = PartialFolder(start_.job().checkpoint().directory(), step);
  absl::Status made;
  if (start_.rank() == 0) {
    made = files_.Remove(folder);
    if (made.ok()) made = files_.MakeFolder(folder);
  }
  double failed = made.ok() ? 0 : 1, unused = 0;
  METP_RETURN_IF_ERROR(Sum(failed, unused));
  last_begun_ = step;
  if (failed > 0) {
    if (!made.ok()) log_(absl::StrCat("no checkpoint of step ", step, ": ", made.message()));
    return false;
  }
  auto snapshot = std::make_shared<Snapshot>(parameters, start_.rank() == 0);
  writing_ = std::make_unique<Writing>();
  writing_->step = step;
  writing_->thread = std::thread([this, folder, snapshot, writing = writing_.get()] {
    writing->status = WriteShard(files_, folder, start_.rank(), ranks_, *snapshot);
    writing->done = true;
  });
  return true;
}

absl::Status Checkpoints::Finish(bool wait) {
  if (writing_ == nullptr) return absl::OkStatus();
  if (wait) writing_->thread.join();
  double done = writing_->done ? 1 : 0, failed = writing_->done && !writing_->status.ok() ? 1 : 0;
  METP_RETURN_IF_ERROR(Sum(done, failed));
  if (static_cast<int>(done) < ranks_) return absl::OkStatus();  // later
  if (writing_->thread.joinable()) writing_->thread.join();
  const std::unique_ptr<Writing> writing = std::move(writing_);
  const v1::CheckpointSpec& spec = start_.job().checkpoint();
  absl::Status mine = writing->status;
  if (start_.rank() == 0) {
    if (failed == 0) {
      mine = CommitCheckpoint(files_, spec.directory(), writing->step, ranks_, spec.keep(), start_.job(),
                              start_.plan());
    } else {
      files_.Remove(PartialFolder(spec.directory(), writing->step)).IgnoreError();
    }
  }
  if (!mine.ok()) log_(absl::StrCat("no checkpoint of step ", writing->step, ": ", mine.message()));
  return absl::OkStatus();
}

absl::StatusOr<double> Checkpoints::AfterStep(int step, bool last, const Parameters& parameters) {
  if (!start_.job().has_checkpoint()) return 0;
  const auto start = std::chrono::steady_clock::now();
  const bool due = step > last_begun_ && (last || step % start_.job().checkpoint().every_steps() == 0);
  METP_RETURN_IF_ERROR(Finish(/*wait=*/due));
  if (due) {
    METP_ASSIGN_OR_RETURN(const bool begun, Begin(step, parameters));
    if (begun && last) METP_RETURN_IF_ERROR(Finish(/*wait=*/true));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace metp
