#include "worker/ring/mlp.h"

#include "worker/ring/accumulators.h"
#include "worker/ring/partition.h"
#include "worker/ring/slots.h"

namespace metp {

namespace {

/// A shard's matrices inside its flat memory.
struct Shard {
  Range units;     // its part of f
  Matrix in, out;  // [h, inputs f/p], [f/p, h]
};

Shard View(const MlpShape& shape, const Matrix& flat, int p, int j) {
  const Range units = Part(shape.f, p, j);
  const int64_t cols = shape.inputs() * units.size();
  return {units, flat.Reshape(0, shape.h, cols), flat.Reshape(shape.h * cols, units.size(), shape.h)};
}

/// u | v = X [W1 | W3] + b1 for one tile.
void Inputs(Backend& backend, const Shard& w, const Matrix& b1, const Matrix& x, const Matrix& uv) {
  backend.Gemm(1, x, Transpose::kNo, w.in, Transpose::kNo, 0, uv);
  if (!b1.empty()) backend.AddBias(b1.Cols(w.units.begin, w.units.end), uv);
}

std::shared_ptr<TravellingShards> Travel(Ring& ring, const MlpShape& shape, const MlpParameters& weights) {
  auto shards = std::make_shared<TravellingShards>(ring, weights.shard, TravellingShards::Home::kKeep,
                                                   PartSizes(shape.f, ring.size(), shape.width()));
  ring.Board(shards);
  return shards;
}

}  // namespace

void MlpForward(Ring& ring, const MlpShape& shape, const MlpParameters& weights, const Matrix& N,
                const Matrix& Y) {
  Backend& backend = ring.backend();
  const int p = ring.size();
  auto shards = Travel(ring, shape, weights);
  const int64_t rows = TileRows(N.rows, shape.tile_rows), most = Part(shape.f, p, 0).size();
  const Tensor memory =
      backend.Allocate(1, rows * shape.inputs() * most, backend.activation(), MemoryCategory::kTransient);
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kMlpForward, [&] {
      const Shard w = View(shape, shards->current(), p, shards->shard());
      const int64_t f = w.units.size();
      for (Range tile : RowTiles(N.rows, shape.tile_rows)) {
        const Matrix uv = memory->Reshape(0, tile.size(), shape.inputs() * f);
        const Matrix u = uv.Cols(0, f), v = shape.inputs() == 2 ? uv.Cols(f, 2 * f) : Matrix{};
        Inputs(backend, w, weights.b1, N.Rows(tile.begin, tile.end), uv);
        backend.ActivationForward(shape.activation, u, v, u);
        backend.Gemm(1, u, Transpose::kNo, w.out, Transpose::kNo, 1, Y.Rows(tile.begin, tile.end));
      }
    });
  }
}

void MlpBackward(Ring& ring, const MlpShape& shape, const MlpParameters& weights,
                 const MlpParameters& gradients, const Matrix& N, const Matrix& dY, const Matrix& dN) {
  Backend& backend = ring.backend();
  const int p = ring.size();
  auto shards = Travel(ring, shape, weights);
  auto sums =
      std::make_shared<TravellingAccumulators>(ring, gradients.shard, PartSizes(shape.f, p, shape.width()));
  ring.Board(sums);
  const int64_t rows = TileRows(N.rows, shape.tile_rows), most = Part(shape.f, p, 0).size();
  const Tensor memory = backend.Allocate(1, rows * (shape.inputs() + 1) * most, backend.activation(),
                                         MemoryCategory::kTransient);
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kMlpBackward, [&] {
      const Shard w = View(shape, shards->current(), p, shards->shard());
      const Shard dw = View(shape, sums->contribution(), p, shards->shard());
      const int64_t f = w.units.size();
      float beta = sums->beta();
      for (Range tile : RowTiles(N.rows, shape.tile_rows)) {
        const Matrix x = N.Rows(tile.begin, tile.end), dy = dY.Rows(tile.begin, tile.end);
        const Matrix uv = memory->Reshape(0, tile.size(), shape.inputs() * f);
        const Matrix u = uv.Cols(0, f), v = shape.inputs() == 2 ? uv.Cols(f, 2 * f) : Matrix{};
        const Matrix m = memory->Reshape(uv.size(), tile.size(), f);
        Inputs(backend, w, weights.b1, x, uv);
        backend.Gemm(1, dy, Transpose::kNo, w.out, Transpose::kYes, 0, m);  // dm
        backend.ActivationBackward(shape.activation, u, v, m);              // du, dv in place, and m again
        backend.Gemm(1, m, Transpose::kYes, dy, Transpose::kNo, beta, dw.out);
        backend.Gemm(1, x, Transpose::kYes, uv, Transpose::kNo, beta, dw.in);
        backend.Gemm(1, uv, Transpose::kNo, w.in, Transpose::kYes, 1, dN.Rows(tile.begin, tile.end));
        if (!gradients.b1.empty()) backend.AddColumnSums(uv, gradients.b1.Cols(w.units.begin, w.units.end));
        beta = 1;
      }
      if (N.rows == 0 && beta == 0) backend.Fill(sums->contribution(), 0);
    });
  }
}

}  // namespace metp
