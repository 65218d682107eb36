#include "worker/rank/link_probe.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "proto/support/status_macros.h"

namespace metp {

namespace {

constexpr int kRepetitions = 9;
constexpr int64_t kLeastElements = int64_t{1} << 20, kMostElements = int64_t{1} << 26;
constexpr double kLong =
    2e-3;  // seconds of a hop, beside which posting it and looking at a clock do not count
constexpr double kUnlimited = 1e30;

/// Median seconds of a hop that sends and receives `elements`, from posting it to having awaited it: what it costs a
/// rank that has nothing else to do.
absl::StatusOr<double> Hop(Backend& backend, Communicator& communicator, int64_t elements) {
  const auto make = [&] {
    Tensor x = backend.Allocate(1, elements, DType::kF32, MemoryCategory::kTransient);
    backend.Fill(x, 0);
    return x;
  };
  const Tensor send = make(), receive = make();
  backend.Synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    METP_RETURN_IF_ERROR(communicator.Await(communicator.Post({{send}, {receive}}, backend.Record())));
    backend.Synchronize();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  communicator.TakeRecords();
  const auto middle = seconds.begin() + kRepetitions / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(*middle, 1e-9);
}

/// The same on every rank.
absl::StatusOr<double> Mean(Backend& backend, Communicator& communicator, double seconds) {
  const Tensor x = backend.Allocate(1, 1, DType::kF32, MemoryCategory::kTransient);
  float value = static_cast<float>(seconds);
  backend.CopyFromHost(&value, x);
  METP_RETURN_IF_ERROR(communicator.AllReduce(x));
  backend.CopyToHost(x, &value);
  return value / static_cast<double>(communicator.size());
}

absl::StatusOr<v1::Link> Measure(Backend& backend, Communicator& communicator) {
  v1::Link link;
  link.set_bytes_per_second(kUnlimited);
  link.set_latency_seconds(0);
  if (communicator.size() == 1) return link;
  METP_RETURN_IF_ERROR(Hop(backend, communicator, 1).status());  // connections warm up
  METP_ASSIGN_OR_RETURN(const double latency, Hop(backend, communicator, 1));
  link.set_latency_seconds(latency);
  for (int64_t elements = kLeastElements;; elements *= 4) {
    METP_ASSIGN_OR_RETURN(const double seconds, Hop(backend, communicator, elements));
    // On a busy machine a short message may wait longer than a long one takes.
    link.set_bytes_per_second(4 * static_cast<double>(elements) / std::max(seconds - latency, seconds / 2));
    METP_ASSIGN_OR_RETURN(const double mean, Mean(backend, communicator, seconds));
    if (mean >= kLong || elements >= kMostElements) return link;
  }
}

}  // namespace

absl::StatusOr<v1::Link> MeasureLink(Backend& backend, Communicator& communicator) {
  try {
    return Measure(backend, communicator);
  } catch (const StepError& error) {
    return error.status();
  }
}

}  // namespace metp
