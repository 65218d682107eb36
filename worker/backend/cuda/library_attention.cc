#include "worker/backend/cuda/library_attention.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/backend/cuda/launch.h"

namespace metp::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr size_t kRuns = 4;  // of each maker before one is chosen; the first warms up
constexpr int64_t kTriedRows = 192;
/// Frobenius, relative: each rounds probabilities and results to bf16 at places of its own.
constexpr double kClose = 1e-2;
constexpr double kCloseLse = 1e-3;  // fp32; logarithms of another base lie far beyond

/// Dense matrices one behind the other in a piece of memory. They may pass its end, which used() tells before they are used.
class Room {
 public:
  Room(const Matrix& memory, int64_t from) : data_(static_cast<char*>(memory.data)), at_(from) {}
  Matrix Take(int64_t rows, int64_t cols, DType type) {
    const Matrix m{data_ + at_, rows, cols, cols, type};
    at_ += CeilDiv(m.bytes(), kAlignment) * kAlignment;
    return m;
  }
  void* rest() const { return data_ + at_; }
  int64_t used() const { return at_; }

 private:
  char* const data_;
  int64_t at_;
};

struct ForwardRoom {
  Matrix o, lse;
  ForwardRoom(Room& room, const FusedBlock& x)
      : o(room.Take(x.nq, int64_t{x.heads} * x.head_dim, DType::kBF16)),
        lse(room.Take(x.heads, x.nq, DType::kF32)) {}
};
struct BackwardRoom {
  Matrix lse, dq, dk, dv;
  BackwardRoom(Room& room, const FusedBlock& x)
      : lse(room.Take(x.heads, x.nq, DType::kF32)),
        dq(room.Take(x.nq, int64_t{x.heads} * x.head_dim, DType::kBF16)),
        dk(room.Take(x.nk, int64_t{x.kv_heads} * x.head_dim, DType::kBF16)),
        dv(room.Take(x.nk, int64_t{x.kv_heads} * x.head_dim, DType::kBF16)) {}
};

/// The query heads from `first` on that a slice takes, and their key heads.
struct SliceCols {
  int64_t q0, q1, k0, k1;  // columns of q and of k
  SliceCols(const FusedBlock& slice, const AttentionBlock& block, int first) {
    const int64_t d = block.head_dim, kv = int64_t{first} * block.kv_heads / block.heads;
    q0 = first * d;
    q1 = q0 + slice.heads * d;
    k0 = kv * d;
    k1 = k0 + slice.kv_heads * d;
  }
};

AttentionBlock FirstRows(const AttentionBlock& block, const FusedBlock& rows) {
  AttentionBlock part = block;
  const int64_t d = block.head_dim;
  part.q = block.q.Block(0, rows.nq, 0, rows.heads * d);
  part.k = block.k.Block(0, rows.nk, 0, rows.kv_heads * d);
  part.v = block.v.Block(0, rows.nk, 0, rows.kv_heads * d);
  part.visible = block.visible.Rows(0, rows.nq);
  part.heads = rows.heads;
  part.kv_heads = rows.kv_heads;
  return part;
}

/// Whether |a - b| <= most |a|. b becomes a + b: |a - b|^2 = 2 |a|^2 + 2 |b|^2 - |a + b|^2. totals [1, 3] fp64.
bool Close(cudaStream_t stream, Scratch scratch, const Matrix& totals, const Matrix& a, const Matrix& b,
           double most) {
  Fill(stream, totals, 0);
  SumSquares(stream, scratch, a, totals.Cols(0, 1));
  SumSquares(stream, scratch, b, totals.Cols(1, 2));
  Add(stream, a, b);
  SumSquares(stream, scratch, b, totals.Cols(2, 3));
  double x[3];
  METP_CUDA(cudaMemcpyAsync(x, totals.data, sizeof x, cudaMemcpyDeviceToHost, stream));
  METP_CUDA(cudaStreamSynchronize(stream));
  return 2 * x[0] + 2 * x[1] - x[2] <= most * most * x[0];  // false where there is a NaN
}

double Median(std::vector<double> seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

LibraryAttention::LibraryAttention(std::unique_ptr<FusedAttention> library, LibraryUse use,
                                   cudaStream_t stream, EventPool& events, Scratch scratch,
                                   const Matrix& room)
    : library_(std::move(library)),
      use_(use),
      stream_(stream),
      events_(events),
      scratch_(scratch),
      room_(room) {}

void LibraryAttention::Say(const Shape& shape, const std::string& what) {
  const FusedBlock& x = shape.second;
  absl::FPrintF(stderr, "attention %s, %d x %d%s, %d/%d heads of %d: %s\n",
                shape.first == kForward ? "forward" : "backward", x.nq, x.nk, x.diagonal ? " causal" : "",
                x.heads, x.kv_heads, x.head_dim, what);
}

bool LibraryAttention::MayTake(const AttentionBlock& block, const Gradients* backward, FusedBlock& shape) {
  if (block.mask == BlockMask::kPerRow || block.head_dim % 8 != 0 || block.heads % block.kv_heads != 0)
    return false;
  if (!RowsAligned(block.q, 16) || !RowsAligned(block.k, 16) || !RowsAligned(block.v, 16)) return false;
  shape = FusedBlockOf(block);
  if (backward == nullptr) return true;
  shape.o_stride = backward->o.stride;
  shape.d_o_stride = backward->d_o.stride;
  return !backward->o.empty() && backward->o.type == DType::kBF16 && RowsAligned(backward->o, 16) &&
         RowsAligned(backward->d_o, 16);
}

int64_t LibraryAttention::ResultBytes(Direction direction, const FusedBlock& slice) {
  Room room({}, 0);
  if (direction == kForward) {
    ForwardRoom(room, slice);
  } else {
    BackwardRoom(room, slice);
  }
  return room.used();
}

bool LibraryAttention::Fits(Direction direction, const FusedBlock& slice, int64_t from) {
  const int64_t results = from + ResultBytes(direction, slice);
  if (results > room_.bytes()) return false;
  const std::optional<int64_t> workspace =
      direction == kForward ? library_->ForwardWorkspace(slice) : library_->BackwardWorkspace(slice);
  return workspace.has_value() && results + *workspace <= room_.bytes();
}

// Whole groups of query heads with their key heads, then parts of one group.
std::optional<FusedBlock> LibraryAttention::Cut(const Shape& shape) {
  const auto& [direction, block] = shape;
  const int group = block.heads / block.kv_heads;
  for (int heads = block.heads; heads > 0; --heads) {
    if (block.heads % heads != 0 || (heads % group != 0 && group % heads != 0)) continue;
    FusedBlock slice = block;
    slice.heads = heads;
    slice.kv_heads = std::max(1, heads / group);
    if (Fits(direction, slice, 0)) return slice;
  }
  return std::nullopt;
}

// A block's first rows and its first group of heads, by both, from the same start. Waits for the device.
std::string LibraryAttention::Objection(const Shape& shape, const AttentionBlock& block,
                                        const Gradients* backward) {
  const auto& [direction, whole] = shape;
  FusedBlock tried = whole;
  tried.nq = std::min(whole.nq, kTriedRows);
  tried.nk = whole.diagonal ? tried.nq : std::min(whole.nk, kTriedRows);
  tried.heads = whole.heads / whole.kv_heads;
  tried.kv_heads = 1;
  const AttentionBlock part = FirstRows(block, tried);
  const int64_t d = block.head_dim, width = tried.heads * d;

  Room room(room_, 0);
  const Matrix totals = room.Take(1, 3, DType::kF64);
  Matrix o[2], lse[2];
  for (Maker maker : {kOwn, kLibrary}) {
    o[maker] = room.Take(tried.nq, width, DType::kF32);
    lse[maker] = room.Take(tried.nq, tried.heads, DType::kF32);
  }
  Gradients x[2];
  if (direction == kBackward) {
    const Matrix narrow_o = room.Take(tried.nq, width, DType::kBF16);
    const Matrix delta = room.Take(tried.nq, tried.heads, DType::kF32);
    for (Gradients& g : x) {
      g = {backward->d_o.Block(0, tried.nq, 0, width),
           narrow_o,
           lse[kOwn],
           delta,
           room.Take(tried.nq, width, DType::kF32),
           room.Take(tried.nk, d, DType::kF32),
           room.Take(tried.nk, d, DType::kF32)};
    }
    tried.o_stride = narrow_o.stride;
  }
  const int64_t from = room.used();
  if (!Fits(direction, tried, from)) return "cannot be compared in its room";

  const auto close = [&](const Matrix& own, const Matrix& library, double most) {
    return Close(stream_, scratch_, totals, own, library, most);
  };
  for (Maker maker : {kOwn, kLibrary}) {
    Fill(stream_, o[maker], 0);
    Fill(stream_, lse[maker], -std::numeric_limits<float>::infinity());
  }
  FlashForwardBf16(stream_, part, o[kOwn], lse[kOwn]);
  bool agrees = true;
  if (direction == kForward) {
    ForwardSlices(tried, from, part, o[kLibrary], lse[kLibrary]);
    agrees = close(o[kOwn], o[kLibrary], kClose) && close(lse[kOwn], lse[kLibrary], kCloseLse);
  } else {  // of this part alone: its own output and statistics
    const Gradients &own = x[kOwn], &library = x[kLibrary];
    Copy(stream_, o[kOwn], own.o);
    AttentionDelta(stream_, own.d_o, own.o, block.head_dim, own.delta);
    for (const Gradients& g : x) {
      for (const Matrix& m : {g.dq, g.dk, g.dv}) Fill(stream_, m, 0);
    }
    FlashBackwardBf16(stream_, scratch_, part, own.d_o, own.lse, own.delta, own.dq, own.dk, own.dv);
    BackwardSlices(tried, from, part, library);
    agrees = close(own.dq, library.dq, kClose) && close(own.dk, library.dk, kClose) &&
             close(own.dv, library.dv, kClose);
  }
  return agrees ? "" : "disagrees with the own kernels";
}

LibraryAttention::Way& LibraryAttention::WayOf(const Shape& shape, const AttentionBlock& block,
                                               const Gradients* backward) {
  const auto [at, fresh] = ways_.try_emplace(shape);
  Way& way = at->second;
  if (!fresh) return way;
  way.slice = Cut(shape);
  const std::string objection = way.slice.has_value()
                                    ? Objection(shape, block, backward)
                                    : absl::StrCat("has no way for it within ", room_.bytes() >> 20, " MiB");
  if (!objection.empty()) Say(shape, absl::StrCat(Describe(), " ", objection, ": own kernels"));
  way.decided = !objection.empty() || use_ == LibraryUse::kAlways;
  way.maker = objection.empty() ? kLibrary : kOwn;
  return way;
}

LibraryAttention::Maker LibraryAttention::Next(const Shape& shape, Way& way) {
  if (way.decided) return way.maker;
  if (way.timed[kOwn].size() < kRuns || way.timed[kLibrary].size() < kRuns)
    return way.timed[kLibrary].size() < way.timed[kOwn].size() ? kLibrary : kOwn;
  if (cudaEventQuery(Handle(way.timed[kLibrary].back().to)) != cudaSuccess) return kOwn;  // not passed yet
  double median[2];
  for (Maker maker : {kOwn, kLibrary}) {
    std::vector<double> seconds;
    for (size_t i = 1; i < kRuns; ++i) {
      float milliseconds = 0;
      const Timed& run = way.timed[maker][i];
      METP_CUDA(cudaEventElapsedTime(&milliseconds, Handle(run.from), Handle(run.to)));
      seconds.push_back(milliseconds * 1e-3);
    }
    median[maker] = Median(std::move(seconds));
  }
  way.decided = true;
  way.maker = median[kLibrary] < median[kOwn] ? kLibrary : kOwn;
  way.timed = {};
  Say(shape,
      absl::StrFormat("own kernels %.3f ms, %s %.3f ms: %s from here on", median[kOwn] * 1e3, Describe(),
                      median[kLibrary] * 1e3, way.maker == kOwn ? "own kernels" : "the library"));
  return way.maker;
}

template <typename Own, typename Library>
void LibraryAttention::Do(const Shape& shape, Way& way, const Own& own, const Library& library) {
  const Maker maker = Next(shape, way);
  const bool timed = !way.decided && way.timed[maker].size() < kRuns;
  Timed run;
  if (timed) run.from = events_.Record(stream_);
  if (maker == kOwn) {
    own();
  } else {
    library();
  }
  if (!timed) return;
  run.to = events_.Record(stream_);
  way.timed[maker].push_back(std::move(run));
}

void LibraryAttention::Forward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  Shape shape{kForward, {}};
  if (!MayTake(block, nullptr, shape.second)) return FlashForwardBf16(stream_, block, o, lse);
  Way& way = WayOf(shape, block, nullptr);
  Do(
      shape, way, [&] { FlashForwardBf16(stream_, block, o, lse); },
      [&] { ForwardSlices(*way.slice, 0, block, o, lse); });
}

void LibraryAttention::Backward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o,
                                const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                                const Matrix& dv) {
  const Gradients x = {d_o, o, lse, delta, dq, dk, dv};
  const auto own = [&] { FlashBackwardBf16(stream_, scratch_, block, d_o, lse, delta, dq, dk, dv); };
  Shape shape{kBackward, {}};
  if (!MayTake(block, &x, shape.second)) return own();
  Way& way = WayOf(shape, block, &x);
  Do(shape, way, own, [&] { BackwardSlices(*way.slice, 0, block, x); });
}

void LibraryAttention::ForwardSlices(const FusedBlock& slice, int64_t from, const AttentionBlock& block,
                                     const Matrix& o, const Matrix& lse) {
  Room room(room_, from);
  const ForwardRoom part(room, slice);
  for (int head = 0; head < block.heads; head += slice.heads) {
    const SliceCols cols(slice, block, head);
    library_->Forward(slice, {block.q.Cols(cols.q0, cols.q1).data, block.k.Cols(cols.k0, cols.k1).data,
                              block.v.Cols(cols.k0, cols.k1).data, part.o.data, part.lse.f32(), room.rest()});
    MergeAttention(stream_, part.o, part.lse, block.head_dim, o.Cols(cols.q0, cols.q1),
                   lse.Cols(head, head + slice.heads));
  }
}

void LibraryAttention::BackwardSlices(const FusedBlock& slice, int64_t from, const AttentionBlock& block,
                                      const Gradients& x) {
  Room room(room_, from);
  const BackwardRoom part(room, slice);
  for (int head = 0; head < block.heads; head += slice.heads) {
    const SliceCols cols(slice, block, head);
    TransposeStatistics(stream_, x.lse.Cols(head, head + slice.heads), part.lse);
    library_->Backward(slice, {block.q.Cols(cols.q0, cols.q1).data, block.k.Cols(cols.k0, cols.k1).data,
                               block.v.Cols(cols.k0, cols.k1).data, x.o.Cols(cols.q0, cols.q1).data,
                               x.d_o.Cols(cols.q0, cols.q1).data, part.lse.f32(), part.dq.data, part.dk.data,
                               part.dv.data, room.rest()});
    Add(stream_, part.dq, x.dq.Cols(cols.q0, cols.q1));
    Add(stream_, part.dk, x.dk.Cols(cols.k0, cols.k1));
    Add(stream_, part.dv, x.dv.Cols(cols.k0, cols.k1));
  }
}

}  // namespace metp::cuda
