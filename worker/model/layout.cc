#include "worker/model/layout.h"

#include <algorithm>

namespace metp {

ParameterLayout::ParameterLayout(const ModelConfig& config, int p, int rank, int head_groups)
    : c_(config),
      p_(p),
      rank_(rank),
      groups_(HeadGroups(config.a, config.g, head_groups)),
      h_(Part(config.h, p, rank)),
      f_(Part(config.f, p, rank)) {
  wte_ = AddTable("wte", c_.V);
  if (c_.max_positions > 0) wpe_ = AddTable("wpe", c_.max_positions);
  for (int l = 0; l < c_.layers; ++l) AddLayer(l);
  head_ = c_.tied ? wte_ : AddTable("head", c_.V);
  nfw_ = AddVector("nf.w", c_.h);
  if (!c_.llama) nfb_ = AddVector("nf.b", c_.h);
}

int64_t ParameterLayout::AddTable(const std::string& name, int64_t rows) {
  const Range own = Part(rows, p_, rank_);
  const int64_t offset = matrix_size_;
  pieces_.push_back({name, rows, c_.h, own, {0, c_.h}, true, offset, c_.h, 1});
  matrix_size_ += own.size() * c_.h;
  return offset;
}

int64_t ParameterLayout::AddVector(const std::string& name, int64_t size) {
  const int64_t offset = vector_size_;
  pieces_.push_back({name, 1, size, {0, 1}, {0, size}, false, offset, size, 1});
  vector_size_ += size;
  return offset;
}

void ParameterLayout::AddLayer(int l) {
  const std::string prefix = "l" + std::to_string(l) + ".";
  Layer layer;
  AddAttention(prefix, layer);
  AddMlp(prefix, layer);
  layer.n1w = AddVector(prefix + "n1.w", c_.h);
  layer.n2w = AddVector(prefix + "n2.w", c_.h);
  if (!c_.llama) {
    layer.n1b = AddVector(prefix + "n1.b", c_.h);
    layer.n2b = AddVector(prefix + "n2.b", c_.h);
    layer.bq = AddVector(prefix + "bq", int64_t{c_.a} * c_.d);
    layer.bk = AddVector(prefix + "bk", int64_t{c_.g} * c_.d);
    layer.bv = AddVector(prefix + "bv", int64_t{c_.g} * c_.d);
    layer.bo = AddVector(prefix + "bo", c_.h);
    layer.b1 = AddVector(prefix + "b1", c_.f);
    layer.b2 = AddVector(prefix + "b2", c_.h);
  }
  layers_.push_back(std::move(layer));
}

void ParameterLayout::AddAttention(const std::string& prefix, Layer& layer) {
  const int64_t d = c_.d, rows = h_.size();
  for (const HeadGroup& group : groups_) {
    const Range q = {group.q.begin * d, group.q.end * d}, kv = {group.kv.begin * d, group.kv.end * d};
    const int64_t width = q.size() + 2 * kv.size();
    layer.qkv.push_back(matrix_size_);
    pieces_.push_back({prefix + "wq", c_.h, c_.a * d, h_, q, true, matrix_size_, width, 1});
    pieces_.push_back({prefix + "wk", c_.h, c_.g * d, h_, kv, true, matrix_size_ + q.size(), width, 1});
    pieces_.push_back(
        {prefix + "wv", c_.h, c_.g * d, h_, kv, true, matrix_size_ + q.size() + kv.size(), width, 1});
    matrix_size_ += rows * width;
    layer.out_t.push_back(matrix_size_);
    pieces_.push_back({prefix + "wo", c_.a * d, c_.h, q, h_, true, matrix_size_, 1, q.size()});
    matrix_size_ += rows * q.size();
  }
}

void ParameterLayout::AddMlp(const std::string& prefix, Layer& layer) {
  const int64_t units = f_.size(), inputs = c_.llama ? 2 : 1;
  layer.mlp = matrix_size_;
  pieces_.push_back({prefix + "w1", c_.h, c_.f, {0, c_.h}, f_, true, matrix_size_, inputs * units, 1});
  if (c_.llama)
    pieces_.push_back(
        {prefix + "w3", c_.h, c_.f, {0, c_.h}, f_, true, matrix_size_ + units, inputs * units, 1});
  matrix_size_ += c_.h * inputs * units;
  pieces_.push_back({prefix + "w2", c_.f, c_.h, f_, {0, c_.h}, true, matrix_size_, c_.h, 1});
  matrix_size_ += units * c_.h;
}

std::vector<ArenaSlice> ParameterLayout::Slices(Range own, bool vectors) const {
  std::vector<ArenaSlice> slices;
  for (const Piece& piece : pieces_) {
    if (!piece.matrix) {
      if (vectors && piece.col.size() > 0)
        slices.push_back({{piece.name, piece.rows, piece.cols, piece.row, piece.col},
                          false,
                          piece.offset,
                          piece.row_stride,
                          piece.col_stride});
      continue;
    }
    // Lines are what is contiguous in the arena: rows, or columns where a tensor is kept transposed.
    const bool by_rows = piece.col_stride == 1;
    const int64_t lines = by_rows ? piece.row.size() : piece.col.size();
    const int64_t length = by_rows ? piece.col.size() : piece.row.size();
    const int64_t stride = by_rows ? piece.row_stride : piece.col_stride;
    const auto owned = [&](int64_t line) -> Range {
      const int64_t start = piece.offset + line * stride;
      return {std::clamp<int64_t>(own.begin - start, 0, length),
              std::clamp<int64_t>(own.end - start, 0, length)};
    };
    for (int64_t line = 0; line < lines;) {
      const Range part = owned(line);
      int64_t end = line + 1;
      while (end < lines && owned(end) == part) ++end;
      if (part.size() > 0) {
        const Range across = {line, end};
        const Range &row = by_rows ? across : part, &col = by_rows ? part : across;
        slices.push_back({{piece.name,
                           piece.rows,
                           piece.cols,
                           {piece.row.begin + row.begin, piece.row.begin + row.end},
                           {piece.col.begin + col.begin, piece.col.begin + col.end}},
                          true,
                          piece.offset + row.begin * piece.row_stride + col.begin * piece.col_stride,
                          piece.row_stride,
                          piece.col_stride});
      }
      line = end;
    }
  }
  return slices;
}

ModelView ParameterLayout::View(const Matrix& matrices, const Matrix& vectors) const {
  auto vector = [&](int64_t offset, int64_t size) {
    return offset < 0 ? Matrix{} : vectors.Reshape(offset, 1, size);
  };
  const int64_t units = f_.size(), inputs = c_.llama ? 2 : 1;
  ModelView view;
  for (const Layer& layer : layers_) {
    LayerView& out = view.layers.emplace_back();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t q = groups_[i].q.size() * c_.d, kv = groups_[i].kv.size() * c_.d;
      out.attention.groups.push_back({matrices.Reshape(layer.qkv[i], h_.size(), q + 2 * kv),
                                      matrices.Reshape(layer.out_t[i], h_.size(), q)});
    }
    out.attention.bq = vector(layer.bq, int64_t{c_.a} * c_.d);
    out.attention.bk = vector(layer.bk, int64_t{c_.g} * c_.d);
    out.attention.bv = vector(layer.bv, int64_t{c_.g} * c_.d);
    out.mlp.shard = matrices.Reshape(layer.mlp, 1, (inputs + 1) * units * c_.h);
    out.mlp.b1 = vector(layer.b1, c_.f);
    out.n1w = vector(layer.n1w, c_.h);
    out.n1b = vector(layer.n1b, c_.h);
    out.n2w = vector(layer.n2w, c_.h);
    out.n2b = vector(layer.n2b, c_.h);
    out.bo = vector(layer.bo, c_.h);
    out.b2 = vector(layer.b2, c_.h);
  }
  auto table = [&](int64_t offset, int64_t rows) {
    return matrices.Reshape(offset, Part(rows, p_, rank_).size(), c_.h);
  };
  view.wte = table(wte_, c_.V);
  if (c_.max_positions > 0) view.wpe = table(wpe_, c_.max_positions);
  view.head = table(head_, c_.V);
  view.nfw = vector(nfw_, c_.h);
  view.nfb = vector(nfb_, c_.h);
  return view;
}

}  // namespace metp
