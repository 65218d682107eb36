#include "worker/ring/replicas.h"

#include <algorithm>

#include "worker/ring/schedule.h"

namespace metp {

namespace {

constexpr int64_t kChunkElements = int64_t{4}
                                   << 20;  // of a message: long beside its latency, small beside a share

/// An arena cut into R segments, each sent in chunks: R - 1 hops for the first chunk of every segment, then for the
/// second, and so on.
class ArenaTraveller : public Traveller {
 public:
  ArenaTraveller(const Ring& ring, const Matrix& flat)
      : rank_(ring.rank()),
        size_(ring.size()),
        flat_(flat),
        hops_((Part(flat.cols, size_, 0).size() + kChunkElements - 1) / kChunkElements * (size_ - 1)) {}
  bool done() const override { return hop_ >= hops_; }

 protected:
  int turn() const { return static_cast<int>(hop_ % (size_ - 1)); }
  /// This hop's chunk of a segment.
  Matrix Chunk(int segment) const {
    const Range whole = Part(flat_.cols, size_, segment);
    const int64_t begin = std::min(whole.end, whole.begin + hop_ / (size_ - 1) * kChunkElements);
    return flat_.Cols(begin, std::min(whole.end, begin + kChunkElements));
  }
  const int rank_, size_;
  const Matrix flat_;
  const int64_t hops_;
  int64_t hop_ = 0;
};

class ArenaScatter final : public ArenaTraveller {
 public:
  ArenaScatter(Ring& ring, const Matrix& flat)
      : ArenaTraveller(ring, flat),
        backend_(ring.backend()),
        arrival_(backend_.Allocate(1, std::min(kChunkElements, Part(flat.cols, size_, 0).size()), flat.type,
                                   MemoryCategory::kRing)) {}
  void Depart(Exchange& hop) override {
    Send(hop, Chunk(ScatterSends(rank_, turn(), size_)));
    Receive(hop, Arrival());
  }
  void Arrive() override {
    backend_.Add(Arrival(), Chunk(ScatterReceives(rank_, turn(), size_)));
    ++hop_;
  }

 private:
  Matrix Arrival() const { return arrival_->Cols(0, Chunk(ScatterReceives(rank_, turn(), size_)).cols); }
  Backend& backend_;
  const Tensor arrival_;
};

class ArenaGather final : public ArenaTraveller {
 public:
  using ArenaTraveller::ArenaTraveller;
  void Depart(Exchange& hop) override {
    Send(hop, Chunk(GatherSends(rank_, turn(), size_)));
    Receive(hop, Chunk(GatherReceives(rank_, turn(), size_)));
  }
  void Arrive() override { ++hop_; }
};

}  // namespace

void Replicas::ReduceScatter(const Matrix& flat) {
  if (!ring_) return;
  ring_->Board(std::make_shared<ArenaScatter>(*ring_, flat));
  ring_->Drain(Pass::kReplicas);
}

void Replicas::Gather(const Matrix& flat) {
  if (!ring_) return;
  ring_->Board(std::make_shared<ArenaGather>(*ring_, flat));
  ring_->Drain(Pass::kReplicas);
}

void Replicas::AllReduce(const Matrix& values) {
  if (ring_) ThrowIfError(ring_->communicator().AllReduce(values));
}

}  // namespace metp
