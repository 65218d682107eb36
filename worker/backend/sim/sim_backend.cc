#include "worker/backend/sim/sim_backend.h"

#include <algorithm>
#include <cstring>

namespace metp::sim {

namespace {
// Addresses of the simulated device. No page is ever mapped there, so a read of one ends the process.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 48;
constexpr int64_t kAlignment = 256;
}  // namespace

SimBackend::SimBackend(const v1::DeviceProfile& profile, MemoryLedger& ledger)
    : cost_(profile), ledger_(ledger), next_address_(kFirstAddress), host_link_(*this, profile) {
  workspace_ =
      Allocate(1, profile.workspace_bytes() / SizeOf(DType::kF32), DType::kF32, MemoryCategory::kWorkspace);
}

void* SimBackend::AllocateBytes(int64_t bytes) {
  void* address = reinterpret_cast<void*>(next_address_);  // NOLINT(performance-no-int-to-ptr): never used
  next_address_ += static_cast<uintptr_t>((bytes + kAlignment - 1) / kAlignment * kAlignment);
  return address;
}

// Small copies of ids and totals; what is offloaded goes by the host link.
void SimBackend::CopyFromHost(const void*, const Matrix& to) { Stream(to.bytes()); }
void SimBackend::CopyToHost(const Matrix& from, void* to) {
  Stream(from.bytes());
  std::memset(to, 0, from.bytes());
}

void SimBackend::Fill(const Matrix& x, float) { Stream(x.bytes()); }
void SimBackend::Copy(const Matrix& from, const Matrix& to) { Stream(from.bytes() + to.bytes()); }
void SimBackend::Add(const Matrix& x, const Matrix& to) { Stream(x.bytes() + 2 * to.bytes()); }
void SimBackend::AddBias(const Matrix&, const Matrix& x) { Stream(2 * x.bytes()); }
void SimBackend::AddColumnSums(const Matrix& x, const Matrix&) { Stream(x.bytes()); }

void SimBackend::Gemm(float, const Matrix& a, Transpose ta, const Matrix& b, Transpose, float beta,
                      const Matrix& c) {
  if (c.empty()) return;
  const int64_t k = ta == Transpose::kNo ? a.cols : a.rows;
  const int64_t bytes = a.bytes() + b.bytes() + (beta == 0 ? 1 : 2) * c.bytes();
  Advance(cost_.Gemm(c.rows, c.cols, k, static_cast<double>(bytes)));
}

void SimBackend::AttentionForward(const AttentionBlock& x, const Matrix& o, const Matrix& lse) {
  if (x.pairs == 0) return;
  // Tiled: the scores are written by the first product, turned into probabilities, and read by the second.
  const int64_t bytes =
      x.q.bytes() + x.k.bytes() + x.v.bytes() + 2 * (o.bytes() + lse.bytes()) + 4 * x.scores.bytes();
  Advance(cost_.AttentionForward(x.pairs, x.heads, x.head_dim, static_cast<double>(bytes)));
}
void SimBackend::AttentionDelta(const Matrix& d_o, const Matrix& o, int, const Matrix& delta) {
  Stream(d_o.bytes() + o.bytes() + delta.bytes());
}
void SimBackend::AttentionBackward(const AttentionBlock& x, const Matrix& d_o, const Matrix& o,
                                   const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv) {
  if (x.pairs == 0) return;
  const int64_t bytes = x.q.bytes() + x.k.bytes() + x.v.bytes() + d_o.bytes() + lse.bytes() + delta.bytes() +
                        2 * (dq.bytes() + dk.bytes() + dv.bytes()) + 3 * x.scores.bytes();
  Advance(cost_.AttentionBackward(x.pairs, x.heads, x.head_dim, static_cast<double>(bytes)));
}

void SimBackend::NormForward(Norm, const Matrix& x, const Matrix&, const Matrix&, float, const Matrix& y) {
  Stream(x.bytes() + y.bytes());
}
void SimBackend::NormBackward(Norm, const Matrix& x, const Matrix&, float, const Matrix& dy, const Matrix& dx,
                              const Matrix&, const Matrix&) {
  Stream(x.bytes() + dy.bytes() + 2 * dx.bytes());
}

void SimBackend::RopeTable(const Matrix&, double, const Matrix& table) { Stream(table.bytes()); }
void SimBackend::Rope(const Matrix& table, bool, const Matrix& x) { Stream(table.bytes() + 2 * x.bytes()); }

void SimBackend::ActivationForward(Activation, const Matrix& u, const Matrix& v, const Matrix& m) {
  Stream(u.bytes() + v.bytes() + m.bytes());
}
void SimBackend::ActivationBackward(Activation, const Matrix& u, const Matrix& v, const Matrix& dm) {
  Stream(2 * (u.bytes() + v.bytes() + dm.bytes()));
}

// How many ids lie in a shard depends on the data; all are looked at, and rows cost like a whole shard's at most.
void SimBackend::EmbeddingGather(const Matrix& ids, int64_t, const Matrix& table, bool, const Matrix& x) {
  Stream(ids.bytes() + std::min(table.bytes(), x.bytes()) + std::min(2 * table.bytes(), x.bytes()));
}
void SimBackend::EmbeddingScatterAdd(const Matrix& ids, int64_t, const Matrix& dx, const Matrix& d_table) {
  Stream(ids.bytes() + std::min(2 * d_table.bytes(), dx.bytes()) + 2 * d_table.bytes());
}

void SimBackend::CrossEntropyForward(const Matrix& logits, const Matrix&, int64_t, const Matrix&,
                                     const Matrix&) {
  Stream(logits.bytes());
}
void SimBackend::CrossEntropyBackward(const Matrix& logits, const Matrix&, int64_t, const Matrix&, float) {
  Stream(2 * logits.bytes());
}
void SimBackend::LossSum(const Matrix& lse, const Matrix&, const Matrix&, const Matrix&) {
  Stream(3 * lse.bytes());
}

void SimBackend::SumSquares(const Matrix& x, const Matrix&) { Stream(x.bytes()); }
void SimBackend::AdamW(const AdamWStep&, const Matrix& g, const Matrix& m, const Matrix& v, const Matrix& w) {
  Stream(g.bytes() + 2 * (m.bytes() + v.bytes() + w.bytes()));
}

}  // namespace metp::sim
