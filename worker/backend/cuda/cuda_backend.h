#pragma once

// The CUDA backend: one device, one compute stream, on which every operation is launched and returns at once. bf16 with
// fp32 statistics, gradients and sums, or fp32 throughout. Products by cuBLASLt, the rest by the kernels of this folder
// (kernels.h). Owned by a rank and used from its compute thread; several may share a device.
//
// Memory comes from a pool of the driver's own, ordered on the compute stream: what is freed is given out again behind the
// work that used it. Another stream that touches a tensor must be waited for (Communicator::Await, HostLink::Await) before
// the tensor goes.

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <string_view>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_host_link.h"
#include "worker/backend/cuda/event_pool.h"
#include "worker/backend/cuda/fused_attention.h"
#include "worker/backend/cuda/gemm.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/library_attention.h"
#include "worker/backend/cuda/memory_pool.h"
#include "worker/backend/cuda/stream.h"

namespace metp::cuda {

struct CudaOptions {
  int device = 0;  // as the runtime numbers them
  DType activation = DType::kBF16;
  int host_threads = 1;  // for AdamW on the host
  /// A library's fused attention beside the own kernels, for bf16; none: theirs alone.
  FusedAttentionOpener fused_attention = nullptr;
  LibraryUse library_use = LibraryUse::kWhereFaster;
  int64_t library_room_bytes = LibraryAttention::kRoomBytes;
};

class CudaBackend final : public Backend {
 public:
  /// Makes the device the calling thread's. Takes its workspace (kWorkspaceBytes + kScratchFloats * 4 bytes, and the room
  /// of a library of attention where there is one) at once. StepError: Internal where there is no such device,
  /// FailedPrecondition where it or its driver is not fit; ResourceExhausted.
  CudaBackend(const CudaOptions& options, MemoryLedger& ledger);
  ~CudaBackend() override;

  int device() const { return options_.device; }
  cudaStream_t stream() const { return stream_; }
  EventPool& events() { return events_; }
  /// Bytes that the pool has from the device: what is given out, and what it keeps for the next tensors.
  int64_t reserved_bytes() const { return pool_.reserved_bytes(); }

  std::string Describe() const override;  // "cuda, NVIDIA H200, bf16, cuDNN 9.19.0"
  MemoryLedger& ledger() override { return ledger_; }
  DType activation() const override { return options_.activation; }

  void CopyFromHost(const void* from, const Matrix& to) override;
  void CopyToHost(const Matrix& from, void* to) override;
  HostLink& host_link() override { return *host_link_; }
  Event Record() override { return events_.Record(stream_); }
  double Seconds(const Event& from, const Event& to) const override;
  double TimeOf(const Event& event) const override;
  void Synchronize() override;
  void Name(std::string_view pass) override;
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
  void FreeBytes(void* data, int64_t bytes) override { pool_.Give(data); }

 private:
  void OpenLibrary();
  Scratch scratch() const { return {scratch_->f32(), scratch_->cols}; }

  const CudaOptions options_;
  MemoryLedger& ledger_;
  const std::string name_;  // the device's
  // In the order in which they must go, the last first.
  const Stream stream_;
  EventPool events_;
  MemoryPool pool_;
  std::unique_ptr<CudaHostLink> host_link_;
  Tensor workspace_;  // cuBLASLt's
  Tensor scratch_;    // the kernels'
  std::unique_ptr<Products> products_;
  Tensor library_room_;
  std::unique_ptr<LibraryAttention> library_;  // null: own kernels alone
  std::string_view pass_;                      // named last; passes' names live for ever
  Event origin_;                               // of TimeOf, since the last Synchronize
  double origin_seconds_ = 0;                  // when that was
};

}  // namespace metp::cuda
