#pragma once

// How a training step fails: out of memory or a broken ring, from deep inside a unit. The engine's code stays
// free of error plumbing; the rank (Trainer, RunRank) catches it and hands the Status on.
// Nothing else throws or catches.

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace metp {

class StepError : public std::exception {
 public:
  explicit StepError(absl::Status status) : status_(std::move(status)), what_(status_.ToString()) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  absl::Status status_;
  std::string what_;
};

inline void ThrowIfError(absl::Status status) {
  if (!status.ok()) throw StepError(std::move(status));
}

}  // namespace metp
