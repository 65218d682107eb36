#pragma once

// The whole device boundary: tracked memory, streams and events, copies, and the coarse operations of which a
// training step consists. One Backend per rank, used from the rank's compute thread.
//
// Order. Operations run in the order issued, on the compute stream. That stream may be synchronous (cpu: an
// operation is done when its call returns). Record() marks a point in it; a Communicator starts a hop only
// after such a point, and Communicator::Await makes the compute stream wait for a hop. Nothing else orders
// the two streams.
//
// Types. Activations, weights in flight and K, V have type activation(); statistics (LSE, delta), gradients,
// accumulators, optimizer state are fp32, sums over everything fp64, ids int32. Where an operand may be
// either it says so.
//
// Empty matrices are legal everywhere and do nothing. Aliasing is legal only where said. Symbols: metp.md's,
// n rows. Errors: Allocate throws StepError(ResourceExhausted); operations cannot fail on cpu, and on a
// device any call may throw the StepError of an operation before it. Shapes that do not agree are a programming
// error and end the process.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "worker/backend/host_link.h"
#include "worker/backend/operands.h"
#include "worker/backend/step_error.h"
#include "worker/backend/tensor.h"
#include "worker/telemetry/ledger.h"

namespace metp {

/// A point in the compute stream. Copyable; a default one has passed already.
struct Event {
  std::shared_ptr<void> point;  // where the stream is asynchronous
  double seconds = 0;           // where it is not: when, on the backend's own clock
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string Describe() const = 0;  // "cpu, 2 threads, avx3"
  virtual MemoryLedger& ledger() = 0;
  virtual DType activation() const = 0;
  /// False on a simulated device: nothing stands behind a tensor, so nothing need be computed for one.
  virtual bool holds_data() const { return true; }

  // Memory. Contents of a new tensor are undefined.
  Tensor Allocate(int64_t rows, int64_t cols, DType type, MemoryCategory category, std::string_view tag = {});

  /// Copies from or to host memory, contiguous; done when the call returns.
  virtual void CopyFromHost(const void* from, const Matrix& to) = 0;
  virtual void CopyToHost(const Matrix& from, void* to) = 0;

  /// Host memory and the copies to and from it.
  virtual HostLink& host_link() = 0;

  // Streams.
  virtual Event Record() = 0;
  /// Seconds of the compute stream from one recorded point to a later one, which must have passed
  /// (Synchronize).
  virtual double Seconds(const Event& from, const Event& to) const { return to.seconds - from.seconds; }
  /// When a point, which must have passed, was: seconds on a clock of the backend's own, for timelines.
  virtual double TimeOf(const Event& event) const { return event.seconds; }
  /// Blocks the calling thread until everything issued so far is done.
  virtual void Synchronize() = 0;
  /// What is issued from here on belongs to `pass`, for profilers.
  virtual void Name(std::string_view pass) {}

  // Elementwise, any of the float types, shapes equal.
  virtual void Fill(const Matrix& x, float value) = 0;
  virtual void Copy(const Matrix& from, const Matrix& to) = 0;          // casts where types differ
  virtual void Add(const Matrix& x, const Matrix& to) = 0;              // to += x
  virtual void AddBias(const Matrix& bias, const Matrix& x) = 0;        // x[i] += bias; bias [1, cols]
  virtual void AddColumnSums(const Matrix& x, const Matrix& sums) = 0;  // sums[1, cols] += sum over rows

  /// c = alpha op(a) op(b) + beta c, beta 0 or 1 (with 0, c's old contents are never read). c may be fp32
  /// under bf16 inputs.
  virtual void Gemm(float alpha, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
                    const Matrix& c) = 0;

  /// Merges one block into the running result: o [nq, heads * d] holds the normalised output over the keys
  /// seen so far, lse [nq, heads] their log-sum-exp; before the first block o = 0, lse = -inf. A row that
  /// sees no key of the block is left as it is (and a row that never sees one ends with o = 0). Computed in
  /// fp32 with the maximum subtracted.
  virtual void AttentionForward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) = 0;
  /// delta [n, heads] = rowsum(d_o * o) per head.
  virtual void AttentionDelta(const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) = 0;
  /// Adds one block's gradients, all fp32: dq [nq, heads * d], dk, dv [nk, kv_heads * d]. `lse` and `delta`
  /// are over all keys, so blocks are exact on their own and add up. `o`, the output that `delta` was made of, may be empty:
  /// some libraries take it in delta's place.
  virtual void AttentionBackward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o,
                                 const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                                 const Matrix& dv) = 0;

  /// y = norm(x) * w (+ b). w, b [1, h]; b is empty for RMSNorm. y may be x.
  virtual void NormForward(Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                           const Matrix& y) = 0;
  /// dx += gradient through the norm of x; dw, db [1, h] += . Statistics are recomputed from x.
  virtual void NormBackward(Norm norm, const Matrix& x, const Matrix& w, float eps, const Matrix& dy,
                            const Matrix& dx, const Matrix& dw, const Matrix& db) = 0;

  /// table [n, d] fp32: cos of the d/2 angles, then sin; angle i = position * theta^(-2i/d), computed in
  /// double.
  virtual void RopeTable(const Matrix& positions, double theta,
                         const Matrix& table) = 0;  // positions [n, 1] int32
  /// Rotates each head of x [n, heads * d] in place, rotate-half convention; inverse: the transposed
  /// rotation.
  virtual void Rope(const Matrix& table, bool inverse, const Matrix& x) = 0;

  /// m = gelu_tanh(u), or silu(u) * v with v given. m may be u.
  virtual void ActivationForward(Activation f, const Matrix& u, const Matrix& v, const Matrix& m) = 0;
  /// In place: u becomes du, v becomes dv, and dm becomes m again (recomputed, for the weight gradient).
  virtual void ActivationBackward(Activation f, const Matrix& u, const Matrix& v, const Matrix& dm) = 0;

  /// Rows ids[i] - first of `table` ([rows, h], the shard whose first row is row `first` of the whole) into
  /// x[i], for the ids that lie in it; other rows of x are left alone. accumulate: added instead of copied.
  virtual void EmbeddingGather(const Matrix& ids, int64_t first, const Matrix& table, bool accumulate,
                               const Matrix& x) = 0;
  /// d_table[ids[i] - first] += dx[i] for the ids that lie in the shard. Deterministic.
  virtual void EmbeddingScatterAdd(const Matrix& ids, int64_t first, const Matrix& dx,
                                   const Matrix& d_table) = 0;

  /// Merges one tile of logits [m, columns first ..) into lse [m, 1] (start: -inf) and picks target_logit [m,
  /// 1] where targets [m, 1] (int32, below 0: ignored) lie in the tile.
  virtual void CrossEntropyForward(const Matrix& logits, const Matrix& targets, int64_t first,
                                   const Matrix& lse, const Matrix& target_logit) = 0;
  /// In place: logits become scale * (softmax - onehot), zero in ignored rows.
  virtual void CrossEntropyBackward(const Matrix& logits, const Matrix& targets, int64_t first,
                                    const Matrix& lse, float scale) = 0;
  /// total [1, 1] fp64 += sum over counted rows of lse - target_logit.
  virtual void LossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
                       const Matrix& total) = 0;

  /// total [1, 1] fp64 += sum of x^2, x fp32.
  virtual void SumSquares(const Matrix& x, const Matrix& total) = 0;
  /// One AdamW update; w the fp32 weights, g, m, v fp32, all of one shape.
  virtual void AdamW(const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
                     const Matrix& w) = 0;

 protected:
  friend class Tensor;
  /// Device memory, 64-byte aligned or better; nullptr when there is none left.
  virtual void* AllocateBytes(int64_t bytes) = 0;
  virtual void FreeBytes(void* data, int64_t bytes) = 0;
};

/// The CPU backend: fp32, oneDNN for products, Highway kernels, OpenMP over `threads`. The ledger must
/// outlive it.
std::unique_ptr<Backend> MakeCpuBackend(int threads, MemoryLedger& ledger);

/// Best rate of sgemm over 1024^3 and 2048^3 on `threads` threads, FLOP/s: the ceiling that MFU is measured
/// against.
double MeasureSgemmFlops(int threads);

}  // namespace metp
