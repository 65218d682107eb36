#include "worker/backend/backend.h"

namespace metp {

Tensor Backend::Allocate(int64_t rows, int64_t cols, DType type, MemoryCategory category,
                         std::string_view tag) {
  Tensor tensor;
  const int64_t bytes = rows * cols * SizeOf(type);
  ThrowIfError(ledger().Take(category, tag, bytes));
  void* data = bytes == 0 ? nullptr : AllocateBytes(bytes);
  if (bytes != 0 && data == nullptr) {
    ledger().Release(category, tag, bytes);
    ThrowIfError(absl::ResourceExhaustedError("the device has no memory left for " + std::to_string(bytes) +
                                              " bytes"));
  }
  tensor.owner_ = this;
  tensor.view_ = Matrix{data, rows, cols, cols, type};
  tensor.category_ = category;
  tensor.tag_ = tag;
  return tensor;
}

void Tensor::Reset() {
  if (owner_ == nullptr) return;
  if (view_.data != nullptr) owner_->FreeBytes(view_.data, view_.bytes());
  owner_->ledger().Release(category_, tag_, view_.bytes());
  owner_ = nullptr;
  view_ = {};
}

}  // namespace metp
