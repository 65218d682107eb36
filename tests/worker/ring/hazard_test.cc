// The ring's two waits a step are enough, and none can be left out: on a device whose streams are really
// asynchronous, taking any one away lets a hop and a kernel touch the same slot at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/recording_backend.h"
#include "worker/ring/attention.h"
#include "worker/ring/mlp.h"

namespace metp::testing {
namespace {

/// Attention forwards and backwards, then the MLP backwards, as a layer runs them, on rank 1 of a ring of p.
/// `keep`: Q, K, V are kept from forward to backward, and backward gathers ahead for the layer below.
class Layer {
 public:
  Layer(int p, int groups, int dropped_wait, bool keep = false)
      : keep_(keep),
        backend_(recorder_),
        communicator_(recorder_, 1 % p, p),
        ring_(backend_, communicator_),
        p_(p) {
    recorder_.dropped_wait = dropped_wait;
    shape_.h = 8 * p;
    shape_.a = shape_.g = 4;
    shape_.d = 2;
    shape_.groups = HeadGroups(4, 4, groups);
    tokens_.split = {8 * p, p};
    tokens_.rank = 1 % p;
    tokens_.n = tokens_.RowsOf(1 % p);
    tokens_.seen = {{0, 8 * p}, {0, 8 * p}};
    tokens_.visible = backend_.Allocate(tokens_.n, 2, DType::kI32, MemoryCategory::kActivations);
    for (const HeadGroup& group : shape_.groups) {
      weights_.groups.push_back({Make(8, 6 * group.kv.size()), Make(8, 2 * group.kv.size())});
      gradients_.groups.push_back({Make(8, 6 * group.kv.size()), Make(8, 2 * group.kv.size())});
    }
  }

  void Run() {
    const Matrix N = Make(tokens_.n, shape_.h), O = Make(tokens_.n, 8), LSE = Make(tokens_.n, 4);
    const Matrix Y = Make(tokens_.n, shape_.h), dN = Make(tokens_.n, shape_.h);
    AttentionUnit unit(ring_, shape_, tokens_);
    std::vector<ProjectedGroup> kept;
    unit.Forward(weights_, Gathered(unit), N, O, LSE, Y, keep_ ? &kept : nullptr);
    unit.Backward(weights_, gradients_, Gathered(unit), {N, O, LSE, keep_ ? &kept : nullptr}, Y, dN,
                  keep_ ? &weights_ : nullptr);
    const MlpShape mlp{shape_.h, 4 * p_, Activation::kSwiGlu, 0};
    const MlpParameters shard{Make(1, mlp.width() * 4), {}}, d_shard{Make(1, mlp.width() * 4), {}};
    MlpBackward(ring_, mlp, shard, d_shard, N, Y, dN);
    ring_.Drain(Pass::kFinish);
    backend_.AdamW({}, d_shard.shard, Make(1, 1), Make(1, 1), shard.shard);
    for (size_t i = 0; i < weights_.groups.size(); ++i) {
      backend_.AdamW({}, gradients_.groups[i].qkv, Make(1, 1), Make(1, 1), weights_.groups[i].qkv);
    }
  }

  Recorder& recorder() { return recorder_; }

 private:
  /// The first group's weights, gathered with no compute beside the hops: their waits order nothing but the
  /// two ends, so they are not among those that must each be needed.
  std::shared_ptr<WeightGather> Gathered(AttentionUnit& unit) {
    recorder_.numbered = false;
    auto first = unit.Prefetch(weights_);
    ring_.Finish(Pass::kFinish, *first);
    recorder_.numbered = true;
    return first;
  }
  Matrix Make(int64_t rows, int64_t cols) {
    memory_.push_back(backend_.Allocate(rows, cols, DType::kF32, MemoryCategory::kTransient));
    return memory_.back();
  }
  const bool keep_;
  Recorder recorder_;
  RecordingBackend backend_;
  RecordingCommunicator communicator_;
  Ring ring_;
  const int p_;
  std::vector<Tensor> memory_;
  AttentionShape shape_;
  TokenRows tokens_;
  AttentionParameters weights_, gradients_;
};

TEST(RingHazards, NoTwoAccessesAreUnordered) {
  for (int p : {1, 2, 3, 4, 5}) {
    for (int groups : {1, 2, 3}) {
      for (bool keep : {false, true}) {
        Layer layer(p, groups, -1, keep);
        layer.Run();
        EXPECT_THAT(layer.recorder().Races(), ::testing::IsEmpty()) << "p " << p << ", groups " << groups;
        EXPECT_EQ(layer.recorder().communication.empty(), p == 1);
      }
    }
  }
}

// With Q, K, V kept some waits are idle: the first hop of a pass sends what was written in another one.
TEST(RingHazards, AnyWaitThatIsRemovedLetsAHazardThrough) {
  for (int p : {3, 4}) {
    for (int groups : {1, 2}) {
      Layer whole(p, groups, -1);
      whole.Run();
      ASSERT_GT(whole.recorder().waits(), 15);
      for (int wait = 0; wait < whole.recorder().waits(); ++wait) {
        Layer layer(p, groups, wait);
        layer.Run();
        EXPECT_FALSE(layer.recorder().Races().empty())
            << whole.recorder().wait_names()[wait] << " could be left out, p " << p << ", groups " << groups;
      }
    }
  }
}

}  // namespace
}  // namespace metp::testing
