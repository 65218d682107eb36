#pragma once

// The library under test with somebody looking over its shoulder.

#include <cuda_runtime.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/backend/library_under_test.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::testing {

/// Of all libraries that OpenWatched opened, by whichever thread.
struct Watch {
  std::vector<cuda::FusedBlock> forward, backward;  // that were given to it
  float scale = 1;                                  // another one makes it wrong
  int sleep_ms = 0;                                 // before each of its blocks
  bool has_library = true;
};
inline Watch watch;
inline std::mutex watch_mutex;  // of forward and backward

class WatchedLibrary final : public cuda::FusedAttention {
 public:
  WatchedLibrary(std::unique_ptr<FusedAttention> library, cudaStream_t stream)
      : library_(std::move(library)), stream_(stream) {}
  std::string Describe() const override { return library_->Describe(); }
  std::optional<int64_t> ForwardWorkspace(const cuda::FusedBlock& x) override {
    return library_->ForwardWorkspace(Changed(x));
  }
  std::optional<int64_t> BackwardWorkspace(const cuda::FusedBlock& x) override {
    return library_->BackwardWorkspace(Changed(x));
  }
  void Forward(const cuda::FusedBlock& x, const cuda::FusedForward& operands) override {
    Note(watch.forward, x);
    library_->Forward(Changed(x), operands);
  }
  void Backward(const cuda::FusedBlock& x, const cuda::FusedBackward& operands) override {
    Note(watch.backward, x);
    library_->Backward(Changed(x), operands);
  }

 private:
  static cuda::FusedBlock Changed(cuda::FusedBlock x) {
    x.scale *= watch.scale;
    return x;
  }
  void Note(std::vector<cuda::FusedBlock>& blocks, const cuda::FusedBlock& x) {
    {
      const std::lock_guard lock(watch_mutex);
      blocks.push_back(x);
    }
    if (watch.sleep_ms == 0) return;
    METP_CUDA(cudaLaunchHostFunc(
        stream_, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(watch.sleep_ms)); },
        nullptr));
  }
  const std::unique_ptr<FusedAttention> library_;
  const cudaStream_t stream_;
};

inline absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> OpenWatched(cudaStream_t stream) {
  if (!watch.has_library) return absl::FailedPreconditionError("no library here");
  absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> library = OpenLibraryUnderTest(stream);
  if (!library.ok()) return library.status();
  return std::make_unique<WatchedLibrary>(*std::move(library), stream);
}

}  // namespace metp::testing
