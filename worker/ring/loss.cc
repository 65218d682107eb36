#include "worker/ring/loss.h"

#include <limits>

#include "worker/ring/accumulators.h"
#include "worker/ring/partition.h"
#include "worker/ring/slots.h"

namespace metp {

namespace {

struct LossPass {
  Ring& ring;
  const LossShape& shape;
  const Matrix& home;
  const Matrix& X;

  std::shared_ptr<TravellingShards> Travel() const {
    auto shards = std::make_shared<TravellingShards>(ring, home.Reshape(0, 1, home.size()),
                                                     TravellingShards::Home::kKeep,
                                                     PartSizes(shape.V, ring.size(), X.cols));
    ring.Board(shards);
    return shards;
  }
  /// Room for one tile.
  Tensor Logits(DType type) const {
    return ring.backend().Allocate(1,
                                   TileRows(X.rows, shape.tile_rows) * Part(shape.V, ring.size(), 0).size(),
                                   type, MemoryCategory::kTransient);
  }
};

}  // namespace

void Loss(Ring& ring, const LossShape& shape, const Matrix& home, const Matrix& d_home, const Matrix& X,
          const Matrix& targets, int64_t counted, const Matrix& total, const Matrix& dX) {
  Backend& backend = ring.backend();
  const int p = ring.size();
  const LossPass pass{ring, shape, home, X};
  const DType operand = backend.activation();
  const Tensor logits = pass.Logits(DType::kF32);
  const Tensor narrow = operand == DType::kF32 ? Tensor() : pass.Logits(operand);  // of their gradient
  const Tensor lse = backend.Allocate(X.rows, 1, DType::kF32, MemoryCategory::kTransient);
  const Tensor target_logit = backend.Allocate(X.rows, 1, DType::kF32, MemoryCategory::kTransient);
  backend.Fill(lse, -std::numeric_limits<float>::infinity());
  backend.Fill(target_logit, 0);

  // Z = X E_j^T for one tile of rows.
  auto Tile = [&](const Matrix& E, Range tile) {
    const Matrix z = logits->Reshape(0, tile.size(), E.rows);
    backend.Gemm(1, X.Rows(tile.begin, tile.end), Transpose::kNo, E, Transpose::kYes, 0, z);
    return z;
  };

  auto shards = pass.Travel();
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kLossForward, [&] {
      const Range rows = Part(shape.V, p, shards->shard());
      const Matrix E = shards->current().Reshape(0, rows.size(), X.cols);
      for (Range tile : RowTiles(X.rows, shape.tile_rows)) {
        backend.CrossEntropyForward(Tile(E, tile), targets.Rows(tile.begin, tile.end), rows.begin,
                                    lse->Rows(tile.begin, tile.end),
                                    target_logit->Rows(tile.begin, tile.end));
      }
    });
  }

  backend.LossSum(lse, target_logit, targets, total);
  backend.Fill(dX, 0);
  const float scale = counted == 0 ? 0.0f : static_cast<float>(1.0 / static_cast<double>(counted));
  shards = pass.Travel();
  auto sums = std::make_shared<TravellingAccumulators>(ring, d_home.Reshape(0, 1, d_home.size()),
                                                       PartSizes(shape.V, p, X.cols));
  ring.Board(sums);
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kLossBackward, [&] {
      const Range rows = Part(shape.V, p, shards->shard());
      const Matrix E = shards->current().Reshape(0, rows.size(), X.cols);
      const Matrix dE = sums->contribution().Reshape(0, rows.size(), X.cols);
      float beta = sums->beta();
      for (Range tile : RowTiles(X.rows, shape.tile_rows)) {
        const Matrix x = X.Rows(tile.begin, tile.end);
        Matrix g = Tile(E, tile);
        backend.CrossEntropyBackward(g, targets.Rows(tile.begin, tile.end), rows.begin,
                                     lse->Rows(tile.begin, tile.end), scale);
        if (operand != DType::kF32) {
          const Matrix cast = narrow->Reshape(0, g.rows, g.cols);
          backend.Copy(g, cast);
          g = cast;
        }
        backend.Gemm(1, g, Transpose::kNo, E, Transpose::kNo, 1, dX.Rows(tile.begin, tile.end));
        backend.Gemm(1, g, Transpose::kYes, x, Transpose::kNo, beta, dE);
        beta = 1;
      }
      if (X.rows == 0 && beta == 0) backend.Fill(dE, 0);
    });
  }
}

}  // namespace metp
