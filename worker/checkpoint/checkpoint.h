#pragma once

// A checkpoint: everything that training needs to go on, under the tensors' own names and shapes, whatever number of ranks
// wrote it and whatever number reads it.
//
//     DIRECTORY/owner                     the run that writes here: the last one that claimed it
//     DIRECTORY/step-00000120/            complete; while it is written step-00000120.RUN.partial
//         shard-00000-of-00004.safetensors    one for each rank: its slices of master weights and both moments, fp32
//         history.bin                         the last steps before it: metp.v1.StepPoint, each after its length
//         manifest.json                       written last: format, step, job, plan; files with size and CRC-32; of every
//                                             tensor its shape and which slice of it stands where; its own CRC-32
//
// In a shard a slice is a tensor "master/l0.wq/0:64/0:128" (rows and columns of the whole), "first_moment/..." or
// "second_moment/...". Writing: every rank writes and synchronises its shard, and leaves what is in it beside it; when all
// have, one gathers that into the manifest, synchronises, and renames the folder, once. So a folder without .partial is
// complete, unless the disk lied, which the checksums find.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/report.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/model/tensor_slice.h"

namespace metp {

enum class StateKind { kMaster, kFirstMoment, kSecondMoment };
inline constexpr StateKind kStateKinds[] = {StateKind::kMaster, StateKind::kFirstMoment,
                                            StateKind::kSecondMoment};

/// What a rank hands over: slice i's values of a kind, row-major, to `to` [row.size() * col.size()].
class SliceSource {
 public:
  virtual ~SliceSource() = default;
  virtual const std::vector<TensorSlice>& slices() const = 0;
  virtual void Get(size_t i, StateKind kind, float* to) const = 0;
};

/// Where a checkpoint of a step is when it is complete, and before that; `run` names who writes it.
std::string CheckpointFolder(const std::string& directory, int step);
std::string PartialFolder(const std::string& directory, int step, const std::string& run);

/// From now on `run` ("job-7/2") is the one that writes into `directory`, which is made if it is not there.
/// FailedPrecondition: a later attempt of the same job is.
absl::Status ClaimCheckpoints(FileSystem& files, const std::string& directory, const std::string& run);
/// FailedPrecondition, naming the other: `run` no longer is. NotFound: nobody is, or an earlier attempt of the same job:
/// it is to be claimed anew.
absl::Status CheckClaim(FileSystem& files, const std::string& directory, const std::string& run);

/// Writes the shard of `rank` of `ranks` into the partial folder, which must be there.
absl::Status WriteShard(FileSystem& files, const std::string& folder, int rank, int ranks,
                        const SliceSource& source);

/// Writes the last steps into the partial folder.
absl::Status WriteHistory(FileSystem& files, const std::string& folder,
                          const std::vector<v1::StepPoint>& points);

/// What decides which sequence comes when.
struct DataOrder {
  int64_t sequences = 0;  // read so far
  int64_t seed = 0, sequence_length = 0;
  int64_t tokens = 0;  // of the whole stream
};

/// Makes a checkpoint of the shards that all `ranks` have written into the partial folder of `run`; on an error nothing of
/// it stays. FailedPrecondition: see CheckClaim.
absl::Status CommitCheckpoint(FileSystem& files, const std::string& directory, int step,
                              const std::string& run, int ranks, const DataOrder& order,
                              const v1::JobSpec& job, const v1::Plan& plan);

/// Removes what runs have left unfinished of steps up to `step`.
absl::Status RemoveUnfinished(FileSystem& files, const std::string& directory,
                              int step = std::numeric_limits<int>::max());

/// Removes all but the `keep` newest complete ones up to `step`, which stays, and RemoveUnfinished.
absl::Status RemoveOldCheckpoints(FileSystem& files, const std::string& directory, int step, int keep);

/// Steps of the folders that look complete, newest first.
absl::StatusOr<std::vector<int>> CompleteCheckpoints(FileSystem& files, const std::string& directory);

/// Gives the checkpoints of later steps other names (step-00000120.abandoned), so that training that starts again after
/// `step` neither goes on from them nor stumbles over them. They are never removed.
absl::Status SetLaterAside(FileSystem& files, const std::string& directory, int step);

class CheckpointReader {
 public:
  /// Reads the manifest and verifies it, and every file, against sizes and checksums. NotFound: no such checkpoint. DataLoss:
  /// a file is missing, truncated or altered, naming it. FailedPrecondition: of a format that this version does not know.
  /// Anything else: it cannot be read here and now, which says nothing of the checkpoint.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(FileSystem& files, const std::string& folder);

  int step() const { return step_; }
  const DataOrder& order() const { return order_; }
  const std::string& folder() const { return folder_; }
  /// The last steps before it, ascending; empty where they were not kept.
  std::vector<v1::StepPoint> History() const;
  /// The job that wrote it. FailedPrecondition, naming the manifest: it has keys that this version does not know, or is none.
  absl::StatusOr<v1::JobSpec> Job() const;
  /// FailedPrecondition unless the checkpoint has exactly these tensors, by name and whole shape: the first difference, both
  /// sides named.
  absl::Status Check(const std::vector<TensorSlice>& slices, bool all_names) const;
  /// A slice's values, row-major. DataLoss: not all of them are there.
  absl::Status Read(const TensorSlice& slice, StateKind kind, float* to) const;

 private:
  struct Part {
    size_t file = 0;
    Range row, col;
    size_t offset[3] = {};  // of its values in the file, by kind
  };
  struct Tensor {
    int64_t rows = 0, cols = 0;
    std::vector<Part> parts;
  };
  CheckpointReader() = default;

  std::string folder_;
  int step_ = 0;
  DataOrder order_;
  std::string job_;  // as the manifest has it, JSON
  std::vector<std::unique_ptr<FileBytes>> files_;
  const FileBytes* history_ = nullptr;  // one of them
  std::map<std::string, Tensor> tensors_;
};

}  // namespace metp
