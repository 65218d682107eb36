#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "tests/bench/attention/attention_block.h"
#include "worker/ring/partition.h"
#include "worker/ring/schedule.h"

namespace metp {

namespace {

/// One rank's tensor-parallel block. Every tensor is given back at its last use.
class Rank {
 public:
  Rank(const BlockShape& shape, Communicator& communicator, bool sequence_parallel)
      : shape_(shape),
        communicator_(communicator),
        split_(sequence_parallel),
        p_(communicator.size()),
        r_(communicator.rank()),
        own_(Part(shape.s, p_, r_)),
        heads_(Part(shape.a, p_, r_)) {
    const int64_t h = shape.h(), w = Width();
    wqkv_ = backend_->Allocate(h, 3 * w, DType::kF32, MemoryCategory::kWeights);
    for (int i = 0; i < 3; ++i) {
      const Tensor part = Upload(*backend_, MemoryCategory::kWeights, static_cast<Values>(kWq + i), 0, h,
                                 heads_.begin * shape.d, w);
      backend_->Copy(part, wqkv_->Cols(i * w, (i + 1) * w));
    }
    wo_ = Upload(*backend_, MemoryCategory::kWeights, kWo, heads_.begin * shape.d, w, 0, h);
    dwqkv_ = backend_->Allocate(h, 3 * w, DType::kF32, MemoryCategory::kGradients);
    dwo_ = backend_->Allocate(w, h, DType::kF32, MemoryCategory::kGradients);
    fixed_ = ledger_.current_total();
  }

  void Run(BlockResult& result, std::mutex& mutex) {
    Tensor X = Upload(*backend_, MemoryCategory::kActivations, kInput, split_ ? own_.begin : 0,
                      split_ ? own_.size() : shape_.s, 0, shape_.h());
    ledger_.ResetPeaks();
    Tensor Y = Forward(X);
    Keep(Y, result.Y, mutex);
    Y.Reset();
    Tensor dX = Backward(std::move(X));
    std::lock_guard lock(mutex);
    result.peak_bytes = std::max(result.peak_bytes, ledger_.peak_total() - fixed_);
    KeepLocked(dX, result.dX);
  }

 private:
  int64_t Width() const { return heads_.size() * shape_.d; }
  Tensor Make(int64_t rows, int64_t cols) {
    return backend_->Allocate(rows, cols, DType::kF32, MemoryCategory::kActivations);
  }

  /// The whole of what ranks hold in shares, round the ring; whole already without sequence parallelism.
  Tensor Gathered(const Tensor& share) {
    Tensor whole = Make(shape_.s, shape_.h());
    backend_->Copy(share, whole->Rows(own_.begin, own_.end));
    for (int t = 0; t + 1 < p_; ++t) {
      const Range out = Part(shape_.s, p_, GatherSends(r_, t, p_)),
                  in = Part(shape_.s, p_, GatherReceives(r_, t, p_));
      ThrowIfError(communicator_.Await(communicator_.Post(
          {{whole->Rows(out.begin, out.end)}, {whole->Rows(in.begin, in.end)}}, backend_->Record())));
    }
    return whole;
  }
  /// Sums over ranks; the own share of it with sequence parallelism.
  Tensor Summed(Tensor partial) {
    ThrowIfError(communicator_.AllReduce(partial));
    if (!split_) return partial;
    Tensor share = Make(own_.size(), shape_.h());
    backend_->Copy(partial->Rows(own_.begin, own_.end), share);
    return share;
  }

  AttentionBlock Block() {
    AttentionBlock block;
    block.q = q_;
    block.k = k_;
    block.v = v_;
    block.visible = visible_;
    block.heads = block.kv_heads = static_cast<int>(heads_.size());
    block.head_dim = shape_.d;
    block.scale = 1 / std::sqrt(static_cast<float>(shape_.d));
    block.pairs = shape_.s * (shape_.s + 1) / 2;
    return block;
  }

  Tensor Forward(const Tensor& X) {
    const int64_t s = shape_.s, w = Width();
    q_ = Make(s, w);
    k_ = Make(s, w);
    v_ = Make(s, w);
    {
      const Tensor gathered = split_ ? Gathered(X) : Tensor();
      const Matrix whole = split_ ? gathered.view() : X.view();
      backend_->Gemm(1, whole, Transpose::kNo, wqkv_->Cols(0, w), Transpose::kNo, 0, q_);
      backend_->Gemm(1, whole, Transpose::kNo, wqkv_->Cols(w, 2 * w), Transpose::kNo, 0, k_);
      backend_->Gemm(1, whole, Transpose::kNo, wqkv_->Cols(2 * w, 3 * w), Transpose::kNo, 0, v_);
    }
    std::vector<int32_t> spans(2 * s, 0);
    for (int64_t i = 0; i < s; ++i) spans[2 * i + 1] = static_cast<int32_t>(i + 1);
    visible_ = backend_->Allocate(s, 2, DType::kI32, MemoryCategory::kActivations);
    backend_->CopyFromHost(spans.data(), visible_);
    o_ = Make(s, w);
    lse_ = Make(s, heads_.size());
    backend_->Fill(o_, 0);
    backend_->Fill(lse_, -std::numeric_limits<float>::infinity());
    backend_->AttentionForward(Block(), o_, lse_);
    Tensor Y = Make(s, shape_.h());
    backend_->Gemm(1, o_, Transpose::kNo, wo_, Transpose::kNo, 0, Y);
    return Summed(std::move(Y));
  }

  Tensor Backward(Tensor X) {
    const int64_t s = shape_.s, h = shape_.h(), w = Width();
    Tensor dO = Make(s, w);
    {
      Tensor dY = Upload(*backend_, MemoryCategory::kActivations, kOutputGradient, split_ ? own_.begin : 0,
                         split_ ? own_.size() : s, 0, h);
      if (split_) dY = Gathered(dY);
      backend_->Gemm(1, dY, Transpose::kNo, wo_, Transpose::kYes, 0, dO);
      backend_->Gemm(1, o_, Transpose::kYes, dY, Transpose::kNo, 0, dwo_);
    }
    const Tensor delta = Make(s, heads_.size());
    backend_->AttentionDelta(dO, o_, shape_.d, delta);
    o_.Reset();
    Tensor d_qkv[3];
    for (Tensor& d : d_qkv) {
      d = Make(s, w);
      backend_->Fill(d, 0);
    }
    backend_->AttentionBackward(Block(), dO, {}, lse_, delta, d_qkv[0], d_qkv[1], d_qkv[2]);
    for (Tensor* done : {&dO, &q_, &k_, &v_, &lse_}) done->Reset();
    if (split_) X = Gathered(X);
    for (int i = 0; i < 3; ++i)
      backend_->Gemm(1, X, Transpose::kYes, d_qkv[i], Transpose::kNo, 0, dwqkv_->Cols(i * w, (i + 1) * w));
    X.Reset();
    Tensor dX = Make(s, h);
    for (int i = 0; i < 3; ++i) {
      backend_->Gemm(1, d_qkv[i], Transpose::kNo, wqkv_->Cols(i * w, (i + 1) * w), Transpose::kYes,
                     i == 0 ? 0 : 1, dX);
      d_qkv[i].Reset();
    }
    return Summed(std::move(dX));
  }

  void Keep(const Tensor& x, std::vector<float>& whole, std::mutex& mutex) {
    std::lock_guard lock(mutex);
    KeepLocked(x, whole);
  }
  void KeepLocked(const Tensor& x, std::vector<float>& whole) {
    whole.resize(shape_.s * shape_.h());
    backend_->CopyToHost(x, whole.data() + (split_ ? own_.begin * shape_.h() : 0));
  }

  const BlockShape& shape_;
  Communicator& communicator_;
  const bool split_;
  const int p_, r_;
  const Range own_, heads_;
  MemoryLedger ledger_;
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1, ledger_);
  Tensor wqkv_, wo_, dwqkv_, dwo_, q_, k_, v_, o_, lse_, visible_;
  int64_t fixed_ = 0;
};

}  // namespace

BlockResult OnRanks(int p, const std::function<void(Communicator&, BlockResult&, std::mutex&)>& rank) {
  auto communicators = MakeLocalCommunicators(p);
  BlockResult result;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) threads.emplace_back([&] { rank(*communicator, result, mutex); });
  for (std::thread& thread : threads) thread.join();
  return result;
}

BlockResult TensorParallel(const BlockShape& shape, int p, bool sequence_parallel) {
  return OnRanks(p, [&](Communicator& communicator, BlockResult& result, std::mutex& mutex) {
    Rank(shape, communicator, sequence_parallel).Run(result, mutex);
  });
}

}  // namespace metp
