#pragma once

// The CPU backend: fp32, synchronous (an operation is done when its call returns), spread over `threads`
// threads. The operations stand in the file of their concern (norm.cc, attention.cc, ...); this class is only
// their common ground. Owned by a rank and used from its compute thread; several may live in one process,
// each on a thread of its own.

#include <string>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/block_pool.h"
#include "worker/backend/cpu/cpu_host_link.h"

namespace metp::cpu {

/// Scratch of one thread, in floats: the score tiles of an attention block, or a norm's weight-gradient
/// partials.
inline constexpr int64_t kScratchFloats = 2 * 256 * 256 + 4096;

class CpuBackend final : public Backend {
 public:
  /// Takes threads * kScratchFloats * 4 bytes of workspace at once, and no other memory of its own
  /// afterwards. StepError ResourceExhausted when the ledger has no room for it.
  CpuBackend(int threads, MemoryLedger& ledger);

  std::string Describe() const override;
  MemoryLedger& ledger() override { return ledger_; }
  DType activation() const override { return DType::kF32; }

  void CopyFromHost(const void* from, const Matrix& to) override;
  void CopyToHost(const Matrix& from, void* to) override;
  HostLink& host_link() override { return host_link_; }
  Event Record() override;
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
  void* AllocateBytes(int64_t bytes) override { return pool_.Take(bytes); }
  void FreeBytes(void* data, int64_t bytes) override { pool_.Give(data, bytes); }

 private:
  /// kScratchFloats floats for thread `thread` of a team.
  float* Scratch(int thread) { return scratch_->f32() + thread * kScratchFloats; }

  const int threads_;
  MemoryLedger& ledger_;
  BlockPool pool_;
  CpuHostLink host_link_;
  Tensor scratch_;  // [threads, kScratchFloats]; after pool_, into which it returns
};

}  // namespace metp::cpu
