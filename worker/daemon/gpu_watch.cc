#include "worker/daemon/gpu_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status_macros.h"
#include "worker/telemetry/gpu/xid.h"

namespace metp {
namespace {

constexpr size_t kMostNamed = 8;  // different Xids in one sentence
constexpr int kMostTakes = 16;

std::optional<int64_t> MemoryErrors(const Gpu& gpu) {
  const absl::StatusOr<int64_t> errors = gpu.UncorrectedErrors();
  return errors.ok() ? std::optional<int64_t>(*errors) : std::nullopt;
}

}  // namespace

GpuWatch::GpuWatch(TakenGpu taken, int64_t slack_bytes)
    : taken_(std::move(taken)), slack_bytes_(slack_bytes) {
  absl::StatusOr<std::unique_ptr<XidEvents>> xids = taken_.gpu.WatchXids();
  if (xids.ok()) xids_ = *std::move(xids);
}

absl::Status GpuWatch::MemoryIsFree() const {
  METP_ASSIGN_OR_RETURN(const GpuMemory now, taken_.gpu.Memory());
  const int64_t held = now.used_bytes - taken_.memory.used_bytes;
  if (held <= slack_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(held >> 20, " MiB of the memory of GPU ",
                                                   taken_.gpu.uuid(), " are still in use, ",
                                                   HoldersOf(taken_.gpu)));
}

std::vector<int> GpuWatch::TakeXids(std::chrono::milliseconds wait) {
  if (xids_ == nullptr) return {};
  std::vector<int> xids = xids_->Take(wait);
  for (const int xid : xids) told_(xid);
  return xids;
}

void GpuWatch::RankStarts() {
  // A device may report the same without end.
  for (int i = 0; i < kMostTakes && !TakeXids(std::chrono::milliseconds(0)).empty(); ++i) {
  }
  memory_errors_ = MemoryErrors(taken_.gpu);
}

std::string GpuWatch::TakeErrors(std::chrono::milliseconds wait) {
  std::vector<std::string> reported;
  for (const int xid : TakeXids(wait)) {
    std::string text = DescribeXid(xid);
    if (reported.size() < kMostNamed && std::find(reported.begin(), reported.end(), text) == reported.end())
      reported.push_back(std::move(text));
  }
  const std::optional<int64_t> before = std::exchange(memory_errors_, MemoryErrors(taken_.gpu));
  if (before.has_value() && memory_errors_.has_value() && *memory_errors_ > *before)
    reported.push_back(
        absl::StrCat(*memory_errors_ - *before, " new memory errors that could not be corrected"));
  std::string text = reported.empty() ? "" : absl::StrCat("its GPU reported ", absl::StrJoin(reported, ", "));
  if (const absl::Status answer = taken_.gpu.Memory().status(); !answer.ok())
    absl::StrAppend(&text, text.empty() ? "" : "; ", "its GPU does not answer (", answer.message(), ")");
  return text;
}

}  // namespace metp
