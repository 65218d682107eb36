#pragma once

// Fused attention by a library in the place of the own bf16 kernels, where it is the faster.
//
// Which is the faster is measured while they work: blocks of one shape are given to the two by turns until each has had a
// few, their times are read when they have passed (nobody waits for that), and the better median has the shape from then
// on. A library that does not agree with the own kernels on the first rows of the first block of a shape never gets one.
//
// A library takes blocks whose mask is known (BlockMask::kNone, kDiagonal) and gives dense bf16 results: forward ones are
// merged by log-sum-exp, backward ones added, both in fp32. These results and the library's workspace have a fixed room;
// a block is cut by heads until it fits. What does not fit, and what the library does not take, is the own kernels'.
//
// One stream's; not thread-safe.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/cuda/event_pool.h"
#include "worker/backend/cuda/fused_attention.h"
#include "worker/backend/cuda/kernels.h"

namespace metp::cuda {

enum class LibraryUse { kWhereFaster, kAlways };

class LibraryAttention {
 public:
  static constexpr int64_t kRoomBytes = int64_t{256} << 20;

  /// `room`: device memory, kRoomBytes or what is enough for the caller's blocks. `events` must outlive this.
  LibraryAttention(std::unique_ptr<FusedAttention> library, LibraryUse use, cudaStream_t stream,
                   EventPool& events, Scratch scratch, const Matrix& room);

  std::string Describe() const { return library_->Describe(); }

  /// As Backend's operations of these names on bf16 blocks without scores. StepError.
  void Forward(const AttentionBlock& block, const Matrix& o, const Matrix& lse);
  void Backward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o, const Matrix& lse,
                const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv);

 private:
  enum Maker { kOwn, kLibrary };
  enum Direction { kForward, kBackward };
  struct Timed {
    Event from, to;
  };
  /// How blocks of one shape are done.
  struct Way {
    std::optional<FusedBlock> slice;  // as many heads as fit, where the library has a way for them
    bool decided = false;
    Maker maker = kOwn;  // once decided
    std::array<std::vector<Timed>, 2> timed;
  };
  using Shape = std::pair<Direction, FusedBlock>;
  struct Gradients {
    Matrix d_o, o, lse, delta, dq, dk, dv;
  };

  static void Say(const Shape& shape, const std::string& what);
  /// Whether the library may take the block at all; then `shape` is its.
  static bool MayTake(const AttentionBlock& block, const Gradients* backward, FusedBlock& shape);
  /// Asks the library and compares it with the own kernels, the first time a shape comes.
  Way& WayOf(const Shape& shape, const AttentionBlock& block, const Gradients* backward);
  static int64_t ResultBytes(Direction direction, const FusedBlock& slice);
  /// Whether the library takes such blocks, with results and workspace in room_ from byte `from` on.
  bool Fits(Direction direction, const FusedBlock& slice, int64_t from);
  std::optional<FusedBlock> Cut(const Shape& shape);
  /// What speaks against it; empty: it agrees with the own kernels.
  std::string Objection(const Shape& shape, const AttentionBlock& block, const Gradients* backward);
  Maker Next(const Shape& shape, Way& way);
  template <typename Own, typename Library>
  void Do(const Shape& shape, Way& way, const Own& own, const Library& library);

  /// In room_ from byte `from` on.
  void ForwardSlices(const FusedBlock& slice, int64_t from, const AttentionBlock& block, const Matrix& o,
                     const Matrix& lse);
  void BackwardSlices(const FusedBlock& slice, int64_t from, const AttentionBlock& block, const Gradients& x);

  const std::unique_ptr<FusedAttention> library_;
  const LibraryUse use_;
  const cudaStream_t stream_;
  EventPool& events_;
  const Scratch scratch_;
  const Matrix room_;
  std::map<Shape, Way> ways_;
};

}  // namespace metp::cuda
