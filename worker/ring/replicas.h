#pragma once

// Data-parallel rings: R rings train on different sequences of a batch, and the ranks at the same place of every ring
// hold the same share of the model. These R ranks form a ring of their own, round which the share's gradients are
// summed and its updated weights handed on once a step. Of the share's optimizer state each keeps an R-th: beside the
// weights that compute reads, rings hold nothing in common (Rajbhandari et al. 2020, ZeRO, stage 1).

#include <optional>

#include "worker/ring/partition.h"
#include "worker/ring/ring.h"

namespace metp {

class Replicas {
 public:
  /// `across` connects the same place of every ring, in the order of the rings; null: there is one ring. Both must
  /// outlive this.
  Replicas(Backend& backend, Communicator* across) {
    if (across != nullptr && across->size() > 1) ring_.emplace(backend, *across);
  }

  int rank() const { return ring_ ? ring_->rank() : 0; }  // the number of this rank's own ring
  int size() const { return ring_ ? ring_->size() : 1; }
  /// Of `elements` those whose sums and state are this rank's.
  Range Own(int64_t elements) const { return Part(elements, size(), rank()); }

  /// Own(flat.cols) of `flat` ([1, n] fp32) becomes the sum over all rings, formed in an order that depends on R
  /// alone; the rest is left undefined. Throws StepError.
  void ReduceScatter(const Matrix& flat);
  /// Every rank's own part of `flat` ([1, n], any type) reaches all.
  void Gather(const Matrix& flat);
  /// Communicator::AllReduce over the rings.
  void AllReduce(const Matrix& values);

  /// See Ring; all under Pass::kReplicas.
  PassTable TakeTimes() { return ring_ ? ring_->TakeTimes() : PassTable{}; }
  int64_t sent_bytes() const { return ring_ ? ring_->sent_bytes() : 0; }
  void set_timeline(Timeline* timeline) {
    if (ring_) ring_->set_timeline(timeline);
  }
  void set_whereabouts(Whereabouts* where) {
    if (ring_) ring_->set_whereabouts(where);
  }

 private:
  std::optional<Ring> ring_;
};

}  // namespace metp
