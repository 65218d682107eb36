#include "worker/backend/host_link.h"

#include <string>

#include "worker/backend/step_error.h"

namespace metp {

HostBlock HostLink::Allocate(int64_t bytes, MemoryCategory category) {
  ThrowIfError(ledger_.Take(category, {}, bytes));
  HostBlock block;
  block.data_ = bytes == 0 ? nullptr : AllocateBytes(bytes);
  if (bytes != 0 && block.data_ == nullptr) {
    ledger_.Release(category, {}, bytes);
    ThrowIfError(
        absl::ResourceExhaustedError("the host has no memory left for " + std::to_string(bytes) + " bytes"));
  }
  block.owner_ = this;
  block.bytes_ = bytes;
  block.category_ = category;
  return block;
}

HostBlock::~HostBlock() {
  if (owner_ == nullptr) return;
  if (data_ != nullptr) owner_->FreeBytes(data_, bytes_);
  owner_->ledger().Release(category_, {}, bytes_);
}

void HostLink::Note(HostTask::Stream stream, double start, double seconds) {
  if (timeline_ == nullptr) return;
  static constexpr struct {
    Stream stream;
    const char* name;
  } kTracks[kHostStreams] = {
      {Stream::kCopyOut, "copy out"}, {Stream::kCopyIn, "copy in"}, {Stream::kHost, "AdamW"}};
  timeline_->Add(kTracks[stream].stream, kTracks[stream].name, start, seconds);
}

}  // namespace metp
