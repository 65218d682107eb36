#include "worker/backend/cuda/cuda_backend.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "worker/backend/checks.h"
#include "worker/backend/cuda/attention_tiled.h"
#include "worker/backend/cuda/capability.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what NVIDIA advises for Hopper

size_t RowBytes(const Matrix& m) { return static_cast<size_t>(m.cols * SizeOf(m.type)); }
size_t StrideBytes(const Matrix& m) { return static_cast<size_t>(m.stride * SizeOf(m.type)); }

/// All of `m`, which lies at one of the two ends. A pitch of 2^31 bytes or more is refused whatever the number of rows, so
/// what is contiguous goes as one run.
void CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, const Matrix& m,
              cudaMemcpyKind kind, cudaStream_t stream) {
  if (m.contiguous()) {
    METP_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(m.bytes()), kind, stream));
  } else {
    METP_CUDA(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, RowBytes(m), static_cast<size_t>(m.rows),
                                kind, stream));
  }
  METP_CUDA(cudaStreamSynchronize(stream));
}

void RequireFlash(const AttentionBlock& block) {
  Require(block.head_dim <= kMostFlashHeadDim,
          "fused attention on CUDA expects a head_dim of at most 256; tiled attention takes any");
}

/// Makes `device` the thread's.
cudaDeviceProp Choose(int device) {
  int count = 0;
  METP_CUDA(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) {
    ThrowIfError(
        absl::InternalError(absl::StrCat("CUDA: found ", count, " devices, expected one numbered ", device)));
  }
  METP_CUDA(cudaSetDevice(device));
  cudaDeviceProp found = {};
  METP_CUDA(cudaGetDeviceProperties(&found, device));
  const std::string unfit = WhyUnfit(found.major, found.minor, found.sharedMemPerBlockOptin);
  if (!unfit.empty())
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat("CUDA: ", found.name, ": ", unfit)));
  return found;
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options, MemoryLedger& ledger)
    : options_(options), ledger_(ledger), name_(Choose(options.device).name), pool_(options.device, stream_) {
  host_link_ = std::make_unique<CudaHostLink>(*this, options.host_threads);
  workspace_ =
      Allocate(1, kWorkspaceBytes / SizeOf(DType::kF32), DType::kF32, MemoryCategory::kWorkspace, "cuBLASLt");
  scratch_ = Allocate(1, kScratchFloats, DType::kF32, MemoryCategory::kWorkspace, "kernels");
  products_ = std::make_unique<Products>(stream_, workspace_);
  origin_ = Record();
  if (options.fused_attention != nullptr && options.activation == DType::kBF16) OpenLibrary();
}

// Without it attention is slower, not wrong, so that its absence is said and no more.
void CudaBackend::OpenLibrary() {
  absl::StatusOr<std::unique_ptr<FusedAttention>> library = options_.fused_attention(stream_);
  if (!library.ok()) {
    std::fprintf(stderr, "attention by own kernels alone: no cuDNN: %s\n",
                 std::string(library.status().message()).c_str());
    return;
  }
  library_room_ = Allocate(1, options_.library_room_bytes / SizeOf(DType::kF32), DType::kF32,
                           MemoryCategory::kWorkspace, "attention library");
  library_ = std::make_unique<LibraryAttention>(*std::move(library), options_.library_use, stream_, events_,
                                                scratch(), library_room_);
}

CudaBackend::~CudaBackend() {
  if (!pass_.empty()) nvtxRangePop();
  cudaStreamSynchronize(stream_);
}

std::string CudaBackend::Describe() const {
  return absl::StrCat("cuda, ", name_, ", ", options_.activation == DType::kBF16 ? "bf16" : "fp32",
                      library_ != nullptr ? ", " + library_->Describe() : "");
}

void CudaBackend::CopyFromHost(const void* from, const Matrix& to) {
  if (to.empty()) return;
  CopyRows(to.data, StrideBytes(to), from, RowBytes(to), to, cudaMemcpyHostToDevice, stream_);
}

void CudaBackend::CopyToHost(const Matrix& from, void* to) {
  if (from.empty()) return;
  CopyRows(to, RowBytes(from), from.data, StrideBytes(from), from, cudaMemcpyDeviceToHost, stream_);
}

double CudaBackend::Seconds(const Event& from, const Event& to) const {
  float milliseconds = 0;
  METP_CUDA(cudaEventElapsedTime(&milliseconds, Handle(from), Handle(to)));
  return milliseconds * 1e-3;
}

double CudaBackend::TimeOf(const Event& event) const { return origin_seconds_ + Seconds(origin_, event); }

// A float of milliseconds keeps a microsecond for some seconds only, so the origin of times moves on.
void CudaBackend::Synchronize() {
  Event now = Record();
  METP_CUDA(cudaEventSynchronize(Handle(now)));
  origin_seconds_ += Seconds(origin_, now);
  origin_ = std::move(now);
}

// One range from the first step of a pass to the next pass: hops' own ranges lie within.
void CudaBackend::Name(std::string_view pass) {
  if (pass == pass_) return;
  if (!pass_.empty()) nvtxRangePop();
  nvtxRangePushA(pass.data());
  pass_ = pass;
}

void CudaBackend::Gemm(float alpha, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
                       const Matrix& c) {
  RequireGemm(activation(), a, ta, b, tb, beta, c);
  if (c.empty()) return;
  if ((ta == Transpose::kYes ? a.rows : a.cols) == 0) {
    if (beta == 0) Fill(c, 0);
    return;
  }
  products_->Run({alpha, a, ta, b, tb, beta, c});
}

void CudaBackend::AttentionForward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  RequireAttentionForward(activation(), block, o, lse);
  if (block.scores.empty()) RequireFlash(block);
  if (block.q.rows == 0 || block.k.rows == 0) return;
  if (!block.scores.empty()) {
    TiledForward(stream_, *products_, block, o, lse);
  } else if (library_ != nullptr) {
    library_->Forward(block, o, lse);
  } else if (activation() == DType::kBF16) {
    FlashForwardBf16(stream_, block, o, lse);
  } else {
    FlashForwardF32(stream_, block, o, lse);
  }
}

void CudaBackend::AttentionBackward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o,
                                    const Matrix& lse, const Matrix& delta, const Matrix& dq,
                                    const Matrix& dk, const Matrix& dv) {
  RequireAttentionBackward(activation(), block, d_o, o, lse, delta, dq, dk, dv);
  if (block.scores.empty()) RequireFlash(block);
  if (block.q.rows == 0 || block.k.rows == 0) return;
  if (!block.scores.empty()) {
    TiledBackward(stream_, *products_, block, d_o, lse, delta, dq, dk, dv);
  } else if (library_ != nullptr) {
    library_->Backward(block, d_o, o, lse, delta, dq, dk, dv);
  } else if (activation() == DType::kBF16) {
    FlashBackwardBf16(stream_, scratch(), block, d_o, lse, delta, dq, dk, dv);
  } else {
    FlashBackwardF32(stream_, scratch(), block, d_o, lse, delta, dq, dk, dv);
  }
}

void CudaBackend::Fill(const Matrix& x, float value) { cuda::Fill(stream_, x, value); }

void CudaBackend::Copy(const Matrix& from, const Matrix& to) {
  Require(SameShape(from, to), "Copy expects equal shapes");
  cuda::Copy(stream_, from, to);
}

void CudaBackend::Add(const Matrix& x, const Matrix& to) {
  Require(SameShape(x, to), "Add expects equal shapes");
  cuda::Add(stream_, x, to);
}

void CudaBackend::AddBias(const Matrix& bias, const Matrix& x) {
  RequireAddBias(activation(), bias, x);
  cuda::AddBias(stream_, bias, x);
}

void CudaBackend::AddColumnSums(const Matrix& x, const Matrix& sums) {
  RequireAddColumnSums(activation(), x, sums);
  cuda::AddColumnSums(stream_, scratch(), x, sums);
}

void CudaBackend::AttentionDelta(const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) {
  RequireAttentionDelta(activation(), d_o, o, head_dim, delta);
  cuda::AttentionDelta(stream_, d_o, o, head_dim, delta);
}

void CudaBackend::NormForward(Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                              const Matrix& y) {
  RequireNormForward(activation(), x, w, b, y);
  cuda::NormForward(stream_, norm, x, w, b, eps, y);
}

void CudaBackend::NormBackward(Norm norm, const Matrix& x, const Matrix& w, float eps, const Matrix& dy,
                               const Matrix& dx, const Matrix& dw, const Matrix& db) {
  RequireNormBackward(activation(), x, w, dy, dx, dw, db);
  cuda::NormBackward(stream_, scratch(), norm, x, w, eps, dy, dx, dw, db);
}

void CudaBackend::RopeTable(const Matrix& positions, double theta, const Matrix& table) {
  RequireRopeTable(positions, table);
  cuda::RopeTable(stream_, positions, theta, table);
}

void CudaBackend::Rope(const Matrix& table, bool inverse, const Matrix& x) {
  RequireRope(activation(), table, x);
  cuda::Rope(stream_, table, inverse, x);
}

void CudaBackend::ActivationForward(Activation f, const Matrix& u, const Matrix& v, const Matrix& m) {
  RequireActivation(activation(), f, u, v, m);
  cuda::ActivationForward(stream_, f, u, v, m);
}

void CudaBackend::ActivationBackward(Activation f, const Matrix& u, const Matrix& v, const Matrix& dm) {
  RequireActivation(activation(), f, u, v, dm);
  cuda::ActivationBackward(stream_, f, u, v, dm);
}

void CudaBackend::EmbeddingGather(const Matrix& ids, int64_t first, const Matrix& table, bool accumulate,
                                  const Matrix& x) {
  RequireEmbeddingGather(activation(), ids, table, x);
  cuda::EmbeddingGather(stream_, ids, first, table, accumulate, x);
}

void CudaBackend::EmbeddingScatterAdd(const Matrix& ids, int64_t first, const Matrix& dx,
                                      const Matrix& d_table) {
  RequireEmbeddingScatterAdd(activation(), ids, dx, d_table);
  cuda::EmbeddingScatterAdd(stream_, ids, first, dx, d_table);
}

void CudaBackend::CrossEntropyForward(const Matrix& logits, const Matrix& targets, int64_t first,
                                      const Matrix& lse, const Matrix& target_logit) {
  RequireCrossEntropyForward(activation(), logits, targets, lse, target_logit);
  cuda::CrossEntropyForward(stream_, logits, targets, first, lse, target_logit);
}

void CudaBackend::CrossEntropyBackward(const Matrix& logits, const Matrix& targets, int64_t first,
                                       const Matrix& lse, float scale) {
  RequireCrossEntropyBackward(activation(), logits, targets, lse);
  cuda::CrossEntropyBackward(stream_, logits, targets, first, lse, scale);
}

void CudaBackend::LossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
                          const Matrix& total) {
  RequireLossSum(lse, target_logit, targets, total);
  cuda::LossSum(stream_, scratch(), lse, target_logit, targets, total);
}

void CudaBackend::SumSquares(const Matrix& x, const Matrix& total) {
  RequireSumSquares(x, total);
  cuda::SumSquares(stream_, scratch(), x, total);
}

void CudaBackend::AdamW(const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
                        const Matrix& w) {
  RequireAdamW(g, m, v, w);
  cuda::AdamW(stream_, step, g, m, v, w);
}

}  // namespace metp::cuda
