#pragma once

// Device memory as the engine sees it. A Matrix (operands.h) is a view; a Tensor owns its memory and gives it
// back, through the ledger, when it goes out of scope. Both belong to one rank and are used from its compute
// thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "worker/backend/operands.h"
#include "worker/telemetry/ledger.h"

namespace metp {

class Backend;

class Tensor {
 public:
  Tensor() = default;
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(view_, other.view_);
    std::swap(category_, other.category_);
    std::swap(tag_, other.tag_);
    return *this;
  }
  ~Tensor() { Reset(); }
  /// Gives the memory back now.
  void Reset();

  const Matrix& view() const { return view_; }
  operator const Matrix&() const { return view_; }  // NOLINT: a tensor is used wherever a view of it is
  const Matrix* operator->() const { return &view_; }

 private:
  friend class Backend;
  Backend* owner_ = nullptr;
  Matrix view_;
  MemoryCategory category_ = MemoryCategory::kTransient;
  std::string tag_;
};

}  // namespace metp
