#include "worker/backend/cpu/cpu_backend.h"

#include <chrono>
#include <cstring>

#include "worker/backend/cpu/dispatch.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {

CpuBackend::CpuBackend(int threads, MemoryLedger& ledger)
    : threads_(threads), ledger_(ledger), host_link_(threads) {
  Require(threads >= 1, "MakeCpuBackend expects at least one thread");
  scratch_ = Allocate(threads, kScratchFloats, DType::kF32, MemoryCategory::kWorkspace, "cpu scratch");
}

std::string CpuBackend::Describe() const {
  return "cpu, " + std::to_string(threads_) + (threads_ == 1 ? " thread, " : " threads, ") + InstructionSet();
}

Event CpuBackend::Record() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {nullptr, std::chrono::duration<double>(now).count()};
}

void CpuBackend::CopyFromHost(const void* from, const Matrix& to) {
  const int64_t row_bytes = to.cols * SizeOf(to.type);
  for (int64_t row = 0; row < to.rows && row_bytes > 0; ++row) {
    std::memcpy(to.Rows(row, row + 1).data, static_cast<const char*>(from) + row * row_bytes, row_bytes);
  }
}

void CpuBackend::CopyToHost(const Matrix& from, void* to) {
  const int64_t row_bytes = from.cols * SizeOf(from.type);
  for (int64_t row = 0; row < from.rows && row_bytes > 0; ++row) {
    std::memcpy(static_cast<char*>(to) + row * row_bytes, from.Rows(row, row + 1).data, row_bytes);
  }
}

}  // namespace metp::cpu

namespace metp {

std::unique_ptr<Backend> MakeCpuBackend(int threads, MemoryLedger& ledger) {
  return std::make_unique<cpu::CpuBackend>(threads, ledger);
}

}  // namespace metp
