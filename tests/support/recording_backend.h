#pragma once

// A backend and a communicator that compute and move nothing but write down who touches which memory when, as
// a device with two truly asynchronous streams would: the hazard tests look for two accesses that no wait
// orders.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"

namespace metp::testing {

/// Bytes from a view's first element to its last (what lies between rows counts).
struct Span {
  uintptr_t begin = 0, end = 0;
  bool Overlaps(const Span& other) const { return begin < other.end && other.begin < end; }
};

struct Access {
  Span span;
  bool write = false;
};

/// One operation of a stream. A stream's operations run in order; across streams only waits order them.
struct Operation {
  std::string name;
  std::vector<Access> accesses;
  int waits_for = 0;  // operations of the other stream that are over before this one starts
};

class Recorder {
 public:
  std::vector<Operation> compute, communication;

  /// Waits are numbered in program order; the one with this number is left out.
  int dropped_wait = -1;
  bool numbered = true;  // waits made while false are kept and not counted
  int waits() const { return waits_; }
  const std::vector<std::string>& wait_names() const { return wait_names_; }

  void Compute(std::string name, std::vector<Matrix> reads, std::vector<Matrix> writes);
  HopId Hop(const Exchange& exchange, int after_compute);
  void Await(HopId hop);

  /// Pairs of operations, one from each stream, that touch the same bytes, one of them writing, in no order.
  std::set<std::string> Races() const;

 private:
  int Wait(std::string name, int target, int inherited);
  int waits_ = 0;
  int compute_waits_for_ = 0;  // hops that the compute stream has waited for
  int communication_waits_for_ = 0;
  std::vector<std::string> wait_names_;
};

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(Recorder& recorder) : recorder_(recorder) {}
  std::string Describe() const override { return "recording"; }
  MemoryLedger& ledger() override { return ledger_; }
  DType activation() const override { return DType::kF32; }
  void CopyFromHost(const void*, const Matrix&) override {}
  void CopyToHost(const Matrix&, void*) override {}
  HostLink& host_link() override { std::abort(); }  // nothing offloads here
  Event Record() override { return {std::make_shared<int>(static_cast<int>(recorder_.compute.size()))}; }
  void Synchronize() override {}

  void Fill(const Matrix& x, float) override { Note("fill", {}, {x}); }
  void Copy(const Matrix& from, const Matrix& to) override { Note("copy", {from}, {to}); }
  void Add(const Matrix& x, const Matrix& to) override { Note("add", {x}, {to}); }
  void AddBias(const Matrix& bias, const Matrix& x) override { Note("add bias", {bias}, {x}); }
  void AddColumnSums(const Matrix& x, const Matrix& sums) override { Note("column sums", {x}, {sums}); }
  void Gemm(float, const Matrix& a, Transpose, const Matrix& b, Transpose, float, const Matrix& c) override {
    Note("gemm", {a, b}, {c});
  }
  void AttentionForward(const AttentionBlock& x, const Matrix& o, const Matrix& lse) override {
    Note("attention", {x.q, x.k, x.v, x.visible}, {o, lse, x.scores});
  }
  void AttentionDelta(const Matrix& d_o, const Matrix& o, int, const Matrix& delta) override {
    Note("delta", {d_o, o}, {delta});
  }
  void AttentionBackward(const AttentionBlock& x, const Matrix& d_o, const Matrix& o, const Matrix& lse,
                         const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv) override {
    Note("attention backward", {x.q, x.k, x.v, x.visible, d_o, lse, delta}, {dq, dk, dv, x.scores});
  }
  void NormForward(Norm, const Matrix& x, const Matrix& w, const Matrix& b, float, const Matrix& y) override {
    Note("norm", {x, w, b}, {y});
  }
  void NormBackward(Norm, const Matrix& x, const Matrix& w, float, const Matrix& dy, const Matrix& dx,
                    const Matrix& dw, const Matrix& db) override {
    Note("norm backward", {x, w, dy}, {dx, dw, db});
  }
  void RopeTable(const Matrix& positions, double, const Matrix& table) override {
    Note("rope table", {positions}, {table});
  }
  void Rope(const Matrix& table, bool, const Matrix& x) override { Note("rope", {table}, {x}); }
  void ActivationForward(Activation, const Matrix& u, const Matrix& v, const Matrix& m) override {
    Note("activation", {u, v}, {m});
  }
  void ActivationBackward(Activation, const Matrix& u, const Matrix& v, const Matrix& dm) override {
    Note("activation backward", {}, {u, v, dm});
  }
  void EmbeddingGather(const Matrix& ids, int64_t, const Matrix& table, bool, const Matrix& x) override {
    Note("embedding", {ids, table}, {x});
  }
  void EmbeddingScatterAdd(const Matrix& ids, int64_t, const Matrix& dx, const Matrix& d_table) override {
    Note("embedding backward", {ids, dx}, {d_table});
  }
  void CrossEntropyForward(const Matrix& logits, const Matrix& targets, int64_t, const Matrix& lse,
                           const Matrix& t) override {
    Note("cross-entropy", {logits, targets}, {lse, t});
  }
  void CrossEntropyBackward(const Matrix& logits, const Matrix& targets, int64_t, const Matrix& lse,
                            float) override {
    Note("cross-entropy backward", {targets, lse}, {logits});
  }
  void LossSum(const Matrix& lse, const Matrix& t, const Matrix& targets, const Matrix& total) override {
    Note("loss", {lse, t, targets}, {total});
  }
  void SumSquares(const Matrix& x, const Matrix& total) override { Note("squares", {x}, {total}); }
  void AdamW(const AdamWStep&, const Matrix& g, const Matrix& m, const Matrix& v, const Matrix& w) override {
    Note("adamw", {g}, {m, v, w});
  }

 protected:
  // No memory is ever handed out twice, so that every conflict found is one of the schedule and not of an
  // address reused.
  void* AllocateBytes(int64_t bytes) override {
    void* at = reinterpret_cast<void*>(next_);
    next_ += static_cast<uintptr_t>(bytes) + 64;
    return at;
  }
  void FreeBytes(void*, int64_t) override {}

 private:
  void Note(const char* name, std::vector<Matrix> reads, std::vector<Matrix> writes) {
    recorder_.Compute(name, std::move(reads), std::move(writes));
  }
  Recorder& recorder_;
  MemoryLedger ledger_;
  uintptr_t next_ = 1 << 20;
};

/// Rank `rank` of a ring of `size`; the neighbours are always ready.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(Recorder& recorder, int rank, int size)
      : recorder_(recorder), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  HopId Post(Exchange exchange, const Event& after) override {
    return recorder_.Hop(exchange, after.point ? *static_cast<int*>(after.point.get()) : 0);
  }
  absl::Status Await(HopId hop) override {
    recorder_.Await(hop);
    return absl::OkStatus();
  }
  absl::Status AllReduce(const Matrix&) override { return absl::OkStatus(); }
  absl::Status Barrier() override { return absl::OkStatus(); }
  void Abort(absl::Status) override {}
  std::vector<HopRecord> TakeRecords() override { return {}; }

 private:
  Recorder& recorder_;
  const int rank_, size_;
};

}  // namespace metp::testing
