#include "worker/ring/embedding.h"

#include "worker/ring/accumulators.h"
#include "worker/ring/partition.h"
#include "worker/ring/schedule.h"
#include "worker/ring/slots.h"

namespace metp {

void EmbeddingForward(Ring& ring, int64_t V, const Matrix& home, const Matrix& ids, bool accumulate,
                      const Matrix& X) {
  const int p = ring.size();
  auto shards = std::make_shared<TravellingShards>(ring, home.Reshape(0, 1, home.size()),
                                                   TravellingShards::Home::kKeep, PartSizes(V, p, X.cols));
  ring.Board(shards);
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kEmbeddingForward, [&] {
      const Range rows = Part(V, p, shards->shard());
      ring.backend().EmbeddingGather(ids, rows.begin, shards->current().Reshape(0, rows.size(), X.cols),
                                     accumulate, X);
    });
  }
}

void EmbeddingBackward(Ring& ring, int64_t V, const Matrix& d_home, const Matrix& ids, const Matrix& dX) {
  const int p = ring.size();
  auto sums = std::make_shared<TravellingAccumulators>(ring, d_home.Reshape(0, 1, d_home.size()),
                                                       PartSizes(V, p, dX.cols));
  ring.Board(sums);
  for (int t = 0; t < p; ++t) {
    ring.Step(Pass::kEmbeddingBackward, [&] {
      const Range rows = Part(V, p, HeldShard(ring.rank(), t, p));
      const Matrix sum = sums->contribution().Reshape(0, rows.size(), dX.cols);
      if (sums->beta() == 0) ring.backend().Fill(sum, 0);
      ring.backend().EmbeddingScatterAdd(ids, rows.begin, dX, sum);
    });
  }
}

}  // namespace metp
