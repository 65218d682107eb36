#include "worker/backend/backend.h"

namespace metp {

Tensor Backend::Allocate(int64_t rows, int64_t cols, DType type, MemoryCategory category,
                         std::string_view tag) {
  Tensor tensor;
  const int64_t bytes = rows * cols * SizeOf(type);
  tensor.tag_ = tag;
  tensor.category_ = category;
  ThrowIfError(ledger().Take(category, tag, bytes));
  tensor.owner_ = this;  // from here on its end gives back what was taken
  tensor.view_ = Matrix{nullptr, rows, cols, cols, type};
  if (bytes == 0) return tensor;
  tensor.view_.data = AllocateBytes(bytes);
  if (tensor.view_.data == nullptr) {
    ThrowIfError(absl::ResourceExhaustedError("the device has no memory left for " + std::to_string(bytes) +
                                              " bytes"));
  }
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
