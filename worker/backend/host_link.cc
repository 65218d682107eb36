#include "worker/backend/host_link.h"

#include <string>

#include "worker/backend/step_error.h"

namespace metp {

HostBlock HostLink::Allocate(int64_t bytes, MemoryCategory category) {
  ThrowIfError(ledger_.Take(category, {}, bytes));
  HostBlock block;
  block.owner_ = this;  // from here on its end gives back what was taken
  block.bytes_ = bytes;
  block.category_ = category;
  if (bytes == 0) return block;
  block.data_ = AllocateBytes(bytes);
  if (block.data_ == nullptr) {
    ThrowIfError(
        absl::ResourceExhaustedError("the host has no memory left for " + std::to_string(bytes) + " bytes"));
  }
  return block;
}

HostBlock::~HostBlock() {
  if (owner_ == nullptr) return;
  if (data_ != nullptr) owner_->FreeBytes(data_, bytes_);
  owner_->ledger().Release(category_, {}, bytes_);
}

namespace {
constexpr struct {
  Stream stream;
  const char* name;
} kTracks[kHostStreams] = {
    {Stream::kCopyOut, "copy out"}, {Stream::kCopyIn, "copy in"}, {Stream::kHost, "AdamW"}};
}  // namespace

void HostLink::Note(HostTask::Stream stream, double start, double seconds) {
  if (timeline_ == nullptr) return;
  timeline_->Add(kTracks[stream].stream, kTracks[stream].name, start, seconds);
}

void HostLink::NoteWait(HostTask::Stream stream, double start, double seconds) {
  if (timeline_ == nullptr) return;
  timeline_->Add(Stream::kWait, kTracks[stream].name, start, seconds, kExposed);
}

}  // namespace metp
