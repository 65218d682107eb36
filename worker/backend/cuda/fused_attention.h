#pragma once

// A library's fused attention over one block, bf16. LibraryAttention puts it in the place of the own kernels where it is the
// faster; cuDNN's is in cudnn_attention.cc.

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

/// What a library must know of a block before it sees its data. Strides count elements from row to row.
struct FusedBlock {
  int64_t nq = 0, nk = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  bool diagonal = false;  // row i sees keys 0 .. i; otherwise every row sees every key
  float scale = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  int64_t o_stride = 0, d_o_stride = 0;  // what backward is given; 0 forward

  auto operator<=>(const FusedBlock&) const = default;
};
/// Of a block whose mask is known, forward.
inline FusedBlock FusedBlockOf(const AttentionBlock& x) {
  return {x.q.rows, x.k.rows,   x.heads,    x.kv_heads, x.head_dim, x.mask == BlockMask::kDiagonal,
          x.scale,  x.q.stride, x.k.stride, x.v.stride};
}

/// Results are dense: o [nq, heads * d]; lse [heads, nq], natural logarithms.
struct FusedForward {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  void* workspace = nullptr;
};
/// `o` and `lse` over all keys, of which the block's may be a part: its gradients are then its part of theirs. Results are
/// dense: dq [nq, heads * d], dk and dv [nk, kv_heads * d].
struct FusedBackward {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr;
  const float* lse = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  void* workspace = nullptr;
};

/// One stream's; not thread-safe.
class FusedAttention {
 public:
  virtual ~FusedAttention() = default;

  virtual std::string Describe() const = 0;  // "cuDNN 9.19.0"
  /// Bytes of workspace for such blocks; none where the library does not take them. The first question about a block may
  /// take a second, since kernels are compiled.
  virtual std::optional<int64_t> ForwardWorkspace(const FusedBlock& block) = 0;
  virtual std::optional<int64_t> BackwardWorkspace(const FusedBlock& block) = 0;
  /// For blocks whose workspace was asked for. Device pointers, aligned to 16 bytes. StepError: Internal.
  virtual void Forward(const FusedBlock& block, const FusedForward& operands) = 0;
  virtual void Backward(const FusedBlock& block, const FusedBackward& operands) = 0;
};

/// FailedPrecondition where the library is not there, or does not go with the driver or the device.
using FusedAttentionOpener = absl::StatusOr<std::unique_ptr<FusedAttention>> (*)(cudaStream_t stream);

/// cuDNN's, out of libcudnn.so.9, which is looked for when this is called. FailedPrecondition also where this build has
/// none.
absl::StatusOr<std::unique_ptr<FusedAttention>> OpenCudnn(cudaStream_t stream);

}  // namespace metp::cuda
