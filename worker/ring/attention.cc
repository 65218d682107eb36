#include "worker/ring/attention.h"

#include <cmath>
#include <limits>

namespace metp {

namespace {
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
}

std::shared_ptr<WeightGather> AttentionUnit::Gather(const AttentionParameters& weights, size_t group) {
  if (group >= weights.groups.size()) return nullptr;
  auto gather = std::make_shared<WeightGather>(ring_, weights.groups[group], shape_.h);
  ring_.Board(gather);
  return gather;
}

std::vector<int64_t> AttentionUnit::KvSizes(const HeadGroup& group) const {
  std::vector<int64_t> sizes;
  for (int j = 0; j < ring_.size(); ++j) sizes.push_back(tokens_.RowsOf(j) * 2 * group.kv.size() * shape_.d);
  return sizes;
}

ProjectedGroup AttentionUnit::Project(const AttentionParameters& weights, const WeightGather& gathered,
                                      const HeadGroup& group, const Matrix& N, bool keep) {
  const int64_t d = shape_.d, wq = group.q.size() * d, wk = group.kv.size() * d;
  const DType type = backend_.activation();
  ProjectedGroup out;
  out.q = backend_.Allocate(tokens_.n, wq, type,
                            keep ? MemoryCategory::kActivations : MemoryCategory::kTransient);
  out.kv = backend_.Allocate(1, (keep ? tokens_.n : tokens_.MaxRows()) * 2 * wk, type,
                             keep ? MemoryCategory::kActivations : MemoryCategory::kRing);
  const Matrix q = out.q, kv = out.kv->Reshape(0, tokens_.n, 2 * wk);
  backend_.Gemm(1, N, Transpose::kNo, gathered.qkv().Cols(0, wq), Transpose::kNo, 0, q);
  backend_.Gemm(1, N, Transpose::kNo, gathered.qkv().Cols(wq, wq + 2 * wk), Transpose::kNo, 0, kv);
  const Matrix k = kv.Cols(0, wk), v = kv.Cols(wk, 2 * wk);
  if (!weights.bq.empty()) {
    backend_.AddBias(weights.bq.Cols(group.q.begin * d, group.q.end * d), q);
    backend_.AddBias(weights.bk.Cols(group.kv.begin * d, group.kv.end * d), k);
    backend_.AddBias(weights.bv.Cols(group.kv.begin * d, group.kv.end * d), v);
  }
  if (!tokens_.rope->empty()) {
    backend_.Rope(tokens_.rope, false, q);
    backend_.Rope(tokens_.rope, false, k);
  }
  return out;
}

std::shared_ptr<TravellingShards> AttentionUnit::Travel(const ProjectedGroup& projected,
                                                        const HeadGroup& group, bool kept) {
  const auto use = kept ? TravellingShards::Home::kKeep : TravellingShards::Home::kReuse;
  auto kv = std::make_shared<TravellingShards>(ring_, projected.kv, use, KvSizes(group));
  ring_.Board(kv);
  return kv;
}

Matrix AttentionUnit::AsOperand(const Matrix& wide, const Matrix& room) {
  if (wide.type == room.type) return wide;
  backend_.Copy(wide, room);
  return room;
}

std::vector<AttentionUnit::Pair> AttentionUnit::Pairs(int source) const {
  std::vector<Pair> pairs;
  for (int i = 0; i < tokens_.b; ++i) {
    const auto own = ChunksOf(tokens_.split, tokens_.rank, i), other = ChunksOf(tokens_.split, source, i);
    for (int x = 0; x < 2; ++x) {
      const Range seen = tokens_.seen[2 * i + x];
      for (const ChunkRows& keys : other) {
        const bool visible = keys.positions.begin < seen.end && keys.positions.end > seen.begin;
        if (own[x].rows() > 0 && keys.rows() > 0 && visible) pairs.push_back({own[x], keys});
      }
    }
  }
  return pairs;
}

Tensor AttentionUnit::Scores(const HeadGroup& group, int per_head) const {
  if (!shape_.tiled) return {};
  const int64_t chunk = Part(tokens_.split.s, 2 * tokens_.split.p, 0).size();
  return backend_.Allocate(per_head * group.q.size() * TileRows(chunk, shape_.tile_rows), chunk, DType::kF32,
                           MemoryCategory::kTransient, "scores");
}

AttentionBlock AttentionUnit::Block(const HeadGroup& group, const Matrix& q, const Matrix& kv,
                                    const Pair& pair, Range rows, const Tensor& scores, int per_head) const {
  const int64_t wk = group.kv.size() * shape_.d;
  const int64_t k0 = pair.source.row, k1 = k0 + pair.source.rows();
  AttentionBlock block;
  block.q = q.Rows(rows.begin, rows.end);
  block.k = kv.Block(k0, k1 - k0, 0, wk);
  block.v = kv.Block(k0, k1 - k0, wk, wk);
  block.visible = tokens_.visible->Rows(rows.begin, rows.end);
  block.key_position = pair.source.positions.begin;
  block.heads = static_cast<int>(group.q.size());
  block.kv_heads = static_cast<int>(group.kv.size());
  block.head_dim = shape_.d;
  block.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.d)));
  const int64_t q0 = pair.own.positions.begin + rows.begin - pair.own.row;
  const Range queries = {q0, q0 + rows.size()};
  block.pairs =
      tokens_.causal ? CausalPairs(queries, pair.source.positions) : rows.size() * pair.source.rows();
  if (!tokens_.documents && block.pairs == rows.size() * pair.source.rows()) {
    block.mask = BlockMask::kNone;
  } else if (!tokens_.documents && queries == pair.source.positions) {
    block.mask = BlockMask::kDiagonal;
  }
  if (shape_.tiled) block.scores = scores->Reshape(0, per_head * group.q.size() * rows.size(), k1 - k0);
  return block;
}

void AttentionUnit::Forward(const AttentionParameters& weights, std::shared_ptr<WeightGather> first,
                            const Matrix& N, const Matrix& O, const Matrix& LSE, const Matrix& Y,
                            std::vector<ProjectedGroup>* keep) {
  std::shared_ptr<WeightGather> gathered = std::move(first);
  for (size_t i = 0; i < shape_.groups.size(); ++i) {
    const HeadGroup& group = shape_.groups[i];
    ring_.Finish(Pass::kAttentionForward, *gathered);
    std::shared_ptr<WeightGather> next = Gather(weights, i + 1);  // makes its hops during this group's steps

    const Matrix kept_o = O.Cols(group.q.begin * shape_.d, group.q.end * shape_.d);
    const Matrix lse = LSE.Cols(group.q.begin, group.q.end);
    Tensor wide;  // partial results merge in fp32, whatever O is
    if (O.type != DType::kF32)
      wide = backend_.Allocate(O.rows, kept_o.cols, DType::kF32, MemoryCategory::kTransient);
    const Matrix o = O.type == DType::kF32 ? kept_o : wide.view();
    ProjectedGroup projected;
    ring_.Compute(Pass::kAttentionForward, [&] {
      projected = Project(weights, *gathered, group, N, keep != nullptr);
      backend_.Fill(o, 0);
      backend_.Fill(lse, kMinusInfinity);
    });
    auto kv = Travel(projected, group, keep != nullptr);
    const Tensor scores = Scores(group, 1);
    for (int t = 0; t < ring_.size(); ++t) {
      ring_.Step(Pass::kAttentionForward, [&] {
        const Matrix source =
            kv->current().Reshape(0, tokens_.RowsOf(kv->shard()), 2 * group.kv.size() * shape_.d);
        for (const Pair& pair : Pairs(kv->shard())) {
          for (Range tile : RowTiles(pair.own.rows(), shape_.tiled ? shape_.tile_rows : 0)) {
            const Range rows = {pair.own.row + tile.begin, pair.own.row + tile.end};
            backend_.AttentionForward(Block(group, projected.q, source, pair, rows, scores, 1),
                                      o.Rows(rows.begin, rows.end), lse.Rows(rows.begin, rows.end));
          }
        }
      });
    }
    ring_.Compute(Pass::kAttentionForward, [&] {
      const Matrix operand = AsOperand(o, kept_o);
      backend_.Gemm(1, operand, Transpose::kNo, gathered->out_t(), Transpose::kYes, 1, Y);
    });
    if (keep != nullptr) keep->push_back(std::move(projected));
    gathered = std::move(next);
  }
}

void AttentionUnit::OutputProjection(const AttentionParameters& weights, const Matrix& O, const Matrix& Y) {
  for (size_t i = 0; i < shape_.groups.size(); ++i) {
    const HeadGroup& group = shape_.groups[i];
    const int64_t width = group.q.size() * shape_.d;
    const Matrix home = weights.groups[i].out_t;
    auto shards = std::make_shared<TravellingShards>(ring_, home.Reshape(0, 1, home.size()),
                                                     TravellingShards::Home::kKeep,
                                                     PartSizes(shape_.h, ring_.size(), width));
    ring_.Board(shards);
    const Matrix o = O.Cols(group.q.begin * shape_.d, group.q.end * shape_.d);
    for (int t = 0; t < ring_.size(); ++t) {
      ring_.Step(Pass::kOutputProjection, [&] {
        const Range cols =
            Part(shape_.h, ring_.size(), shards->shard());  // shard j of Wo makes columns j of Y
        backend_.Gemm(1, o, Transpose::kNo, shards->current().Reshape(0, cols.size(), width), Transpose::kYes,
                      1, Y.Cols(cols.begin, cols.end));
      });
    }
  }
}

}  // namespace metp
