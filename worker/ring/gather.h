#pragma once

// One head group's weights, gathered round the ring ahead of their use, and its weight gradients, scattered
// back. Both make p - 1 hops and ride on the steps of other passes. A group's slice is two matrices (query,
// key and value projections; output projection, transposed), each cut into p pieces of consecutive rows, so a
// piece is contiguous wherever it is.

#include <array>
#include <memory>

#include "worker/ring/partition.h"
#include "worker/ring/ring.h"

namespace metp {

/// This rank's rows of one head group's weights, or of their gradients. h is cut over ranks,
/// w = (a + 2g) d / c.
struct GroupShard {
  Matrix qkv;    // [h/p, w]: columns Q | K | V
  Matrix out_t;  // [h/p, a d / c]: Wo of the group, transposed
};

class WeightGather : public Traveller {
 public:
  /// Gathers the group of which `home` is the own part; all parts together have `h` rows. With one rank
  /// nothing is copied.
  WeightGather(Ring& ring, const GroupShard& home, int64_t h);
  const Matrix& qkv() const { return whole_[0]; }    // [h, w]; complete when done
  const Matrix& out_t() const { return whole_[1]; }  // [h, a d / c]

  void Depart(Exchange& hop) override;
  void Arrive() override { ++hop_; }
  bool done() const override { return hop_ >= p_ - 1; }

 private:
  Matrix Piece(int matrix, int piece) const {
    const Range rows = Part(h_, p_, piece);
    return whole_[matrix].Rows(rows.begin, rows.end);
  }
  const int rank_, p_;
  const int64_t h_;
  int hop_ = 0;
  std::array<Tensor, 2> memory_;
  std::array<Matrix, 2> whole_;
};

class GradientScatter : public Traveller {
 public:
  /// Sums of the ranks' partials are added to `home` (fp32) piece by piece. The caller fills qkv() and
  /// out_t() before boarding: whole slices, this rank's tokens only. With one rank they are `home` itself, to
  /// be added to: see beta().
  GradientScatter(Ring& ring, const GroupShard& home, int64_t h);
  const Matrix& qkv() const { return partial_[0]; }
  const Matrix& out_t() const { return partial_[1]; }
  float beta() const { return p_ == 1 ? 1.0f : 0.0f; }

  void Depart(Exchange& hop) override;
  void Arrive() override;
  bool done() const override { return hop_ >= p_ - 1; }

 private:
  Matrix Piece(int matrix, int piece) const {
    const Range rows = Part(h_, p_, piece);
    return partial_[matrix].Rows(rows.begin, rows.end);
  }
  Matrix Arrival(int matrix, int piece) const;

  Backend& backend_;
  const int rank_, p_;
  const int64_t h_;
  int hop_ = 0;
  GroupShard home_;
  std::array<Tensor, 2> memory_, arrival_;
  std::array<Matrix, 2> partial_;
};

}  // namespace metp
