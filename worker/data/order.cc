// The permutations, computed when an epoch is first asked for.

#include "worker/data/order.h"

#include <numeric>
#include <utility>

#include "absl/numeric/int128.h"

namespace metp {
namespace {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in 0..n-1.
  uint64_t Below(uint64_t n) {
    const uint64_t unfair = (0 - n) % n;  // 2^64 mod n
    absl::uint128 product = 0;
    do {
      product = absl::uint128(Next()) * n;
    } while (absl::Uint128Low64(product) < unfair);
    return absl::Uint128High64(product);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<int64_t> EpochOrder(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  SplitMix64 random(SplitMix64(seed).Next() + static_cast<uint64_t>(epoch));
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  return order;
}

int64_t SequenceOrder::At(int64_t k) const {
  const int64_t number = k / count_;
  MutexLock lock(mutex_);
  Epoch& epoch = epochs_[static_cast<size_t>(number % 2)];
  if (epoch.number != number) {
    epoch.order = EpochOrder(count_, seed_, number);
    epoch.number = number;
  }
  return epoch.order[static_cast<size_t>(k % count_)];
}

}  // namespace metp
