#pragma once

// The simulated backend: the training step runs on it unchanged and computes nothing. Memory is taken from the
// ledger as on a real device, but an address has nothing behind it; every operation moves the clock of the
// compute stream on by what the cost model says. So a step yields its exact peak memory and its predicted
// timeline in the time that it takes to issue it.

#include <string>

#include "worker/backend/backend.h"
#include "worker/backend/sim/cost_model.h"
#include "worker/backend/sim/sim_host_link.h"

namespace metp::sim {

class SimBackend final : public Backend {
 public:
  /// `profile`: complete and valid. Takes its workspace_bytes at once. The ledger must outlive the backend.
  SimBackend(const v1::DeviceProfile& profile, MemoryLedger& ledger);

  /// The compute stream's clock, seconds since the start.
  double now() const { return now_; }
  void Advance(double seconds) { now_ += seconds; }

  std::string Describe() const override { return "simulated " + cost_.profile().name(); }
  MemoryLedger& ledger() override { return ledger_; }
  DType activation() const override {
    return cost_.profile().precision() == v1::DeviceProfile::PRECISION_BF16 ? DType::kBF16 : DType::kF32;
  }
  bool holds_data() const override { return false; }

  void CopyFromHost(const void* from, const Matrix& to) override;
  void CopyToHost(const Matrix& from, void* to) override;  // zeros
  HostLink& host_link() override { return host_link_; }
  Event Record() override { return {nullptr, now_}; }
  void Synchronize() override {}

  void Fill(const Matrix& x, float value) override;
  void Copy(const Matrix& from, const Matrix& to) override;
  void Add(const Matrix& x, const Matrix& to) override;
  void AddBias(const Matrix& bias, const Matrix& x) override;
  void AddColumnSums(const Matrix& x, const Matrix& sums) override;
  void Gemm(float alpha, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
            const Matrix& c) override;
  void AttentionForward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) override;
  void AttentionDelta(const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) override;
  void AttentionBackward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o, const Matrix& lse,
                         const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv) override;
  void NormForward(Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                   const Matrix& y) override;
  void NormBackward(Norm norm, const Matrix& x, const Matrix& w, float eps, const Matrix& dy,
                    const Matrix& dx, const Matrix& dw, const Matrix& db) override;
  void RopeTable(const Matrix& positions, double theta, const Matrix& table) override;
  void Rope(const Matrix& table, bool inverse, const Matrix& x) override;
  void ActivationForward(Activation f, const Matrix& u, const Matrix& v, const Matrix& m) override;
  void ActivationBackward(Activation f, const Matrix& u, const Matrix& v, const Matrix& dm) override;
  void EmbeddingGather(const Matrix& ids, int64_t first, const Matrix& table, bool accumulate,
                       const Matrix& x) override;
  void EmbeddingScatterAdd(const Matrix& ids, int64_t first, const Matrix& dx,
                           const Matrix& d_table) override;
  void CrossEntropyForward(const Matrix& logits, const Matrix& targets, int64_t first, const Matrix& lse,
                           const Matrix& target_logit) override;
  void CrossEntropyBackward(const Matrix& logits, const Matrix& targets, int64_t first, const Matrix& lse,
                            float scale) override;
  void LossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
               const Matrix& total) override;
  void SumSquares(const Matrix& x, const Matrix& total) override;
  void AdamW(const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
             const Matrix& w) override;

 protected:
  void* AllocateBytes(int64_t bytes) override;
  void FreeBytes(void*, int64_t) override {}

 private:
  /// An operation that reads and writes `bytes` and computes next to nothing.
  void Stream(int64_t bytes) {
    if (bytes > 0) Advance(cost_.Memory(static_cast<double>(bytes)));
  }

  const CostModel cost_;
  MemoryLedger& ledger_;
  uintptr_t next_address_;
  double now_ = 0;
  SimHostLink host_link_;
  Tensor workspace_;
};

}  // namespace metp::sim
