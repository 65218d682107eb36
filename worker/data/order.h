#pragma once

// In which order an epoch visits its sequences: a permutation that depends on the count, the seed and the
// epoch's number alone, the same on every machine and with every compiler. Internally locked: any thread may
// ask.
//
// Algorithm, fixed for ever, since a resumed run relies on it:
//   next(state)      SplitMix64 (Steele, Lea, Flood 2014): state += 0x9e3779b97f4a7c15; z = state;
//                    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9; z = (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >>
//                    31
//   state            of epoch e: next(seed) + e, where next(seed) is the first output of the state `seed`
//   below(n)         Lemire 2019: the high word of x * n for x = next(); x is drawn again while the low word
//   is less
//                    than 2^64 mod n, so that all n values are equally likely
//   permutation      0..count-1, then Fisher-Yates: for i = count - 1 down to 1 swap elements i and below(i +
//   1)

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/support/mutex.h"

namespace metp {

/// Epoch `epoch`'s permutation of 0..count-1.
std::vector<int64_t> EpochOrder(int64_t count, uint64_t seed, int64_t epoch);

class SequenceOrder {
 public:
  /// count > 0
  SequenceOrder(int64_t count, uint64_t seed) : count_(count), seed_(seed) {}

  /// The sequence that the job's k-th one is, k counting from 0 through the epochs.
  int64_t At(int64_t k) const METP_EXCLUDES(mutex_);

 private:
  struct Epoch {
    int64_t number = -1;
    std::vector<int64_t> order;
  };

  const int64_t count_;
  const uint64_t seed_;
  mutable Mutex mutex_;
  // By parity of the epoch's number: around an epoch's end, ranks in one process ask for both.
  mutable std::array<Epoch, 2> epochs_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp
