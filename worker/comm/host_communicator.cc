#include "worker/comm/host_communicator.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/comm/ring_all_reduce.h"

namespace metp {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// How much of [a0, a1] lies in [b0, b1].
std::chrono::steady_clock::duration Overlap(TimePoint a0, TimePoint a1, TimePoint b0, TimePoint b1) {
  return std::max(std::chrono::steady_clock::duration::zero(), std::min(a1, b1) - std::max(a0, b0));
}

void DropEmpty(std::vector<Matrix>& transfers) {
  std::erase_if(transfers, [](const Matrix& transfer) { return transfer.empty(); });
}

bool Contiguous(const std::vector<Matrix>& transfers) {
  return std::all_of(transfers.begin(), transfers.end(), [](const Matrix& m) { return m.contiguous(); });
}

}  // namespace

HostCommunicator::HostCommunicator(int rank, int size, std::unique_ptr<Transport> transport,
                                   CommunicatorOptions options)
    : rank_(rank), size_(size), options_(options), transport_(std::move(transport)) {
  thread_ = std::thread([this] { RunHops(); });
}

HostCommunicator::~HostCommunicator() {
  bool running;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    running = done_sequence_ != last_sequence_;
    posted_.NotifyAll();
  }
  if (running) {
    transport_->Cancel(
        absl::CancelledError(absl::StrCat("rank ", rank_, " left the ring with hops unfinished")));
  }
  thread_.join();
}

HopId HostCommunicator::Post(Exchange exchange, const Event& after) {
  MutexLock lock(mutex_);
  const HopId id = ++last_id_;
  if (after.point != nullptr) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "hop ", id, ": posted behind a device's event; this communicator moves host memory only")));
  } else if (!Contiguous(exchange.sends) || !Contiguous(exchange.receives)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("hop ", id, ": a transfer is not contiguous")));
  }
  Hop hop;
  hop.id = id;
  hop.exchange = std::move(exchange);
  Enqueue(std::move(hop));
  return id;
}

void HostCommunicator::Enqueue(Hop hop) {
  hop.sequence = ++last_sequence_;
  DropEmpty(hop.exchange.sends);
  DropEmpty(hop.exchange.receives);
  queue_.push_back(std::move(hop));
  posted_.NotifyAll();
}

absl::Status HostCommunicator::AwaitSequence(uint64_t sequence) {
  while (failure_.ok() && done_sequence_ < sequence) finished_.Wait(mutex_);
  return failure_;
}

absl::Status HostCommunicator::Await(HopId hop) {
  MutexLock lock(mutex_);
  if (hop == 0 || hop > last_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("hop ", hop, " was never posted; the last one is ", last_id_));
  }
  const TimePoint from = Now();
  bool waited = false;
  while (failure_.ok() && done_id_ < hop) {
    waited = true;
    finished_.Wait(mutex_);
  }
  if (!failure_.ok()) {
    while (running_) finished_.Wait(mutex_);  // the hop's buffers are the caller's to free now
    return failure_;
  }
  const auto it = std::find_if(done_.begin(), done_.end(), [&](const Done& done) { return done.id == hop; });
  if (it == done_.end()) return absl::OkStatus();  // awaited before

  HopRecord record;
  record.hop = hop;
  record.sent_bytes = it->sent_bytes;
  record.communication = Seconds(it->times.done - it->times.ready);
  record.start = Seconds(it->times.ready.time_since_epoch());
  if (waited) {
    // Hops before this one that nobody awaited yet may have been what the stream stood at.
    const TimePoint to = Now();
    // What came after the hop was done is the scheduler's time (more ranks than cores), not communication.
    std::chrono::steady_clock::duration skew{}, exposed{};
    for (const Done& done : done_) {
      if (done.id > hop) continue;
      skew += Overlap(done.times.start, done.times.ready, from, to);
      exposed += Overlap(done.times.ready, done.times.done, from, to);
    }
    record.skew = Seconds(skew);
    record.exposed = Seconds(exposed);
    record.stood = Seconds(std::max(from, done_.front().times.start).time_since_epoch());
  }
  records_.push_back(record);
  done_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<TimePoint> HostCommunicator::StartCollective() {
  MutexLock lock(mutex_);
  METP_RETURN_IF_ERROR(AwaitSequence(last_sequence_));
  return Now() + options_.deadline;
}

absl::Status HostCommunicator::RunCollectiveHop(const char* collective, Exchange exchange,
                                                TimePoint deadline) {
  MutexLock lock(mutex_);
  Hop hop;
  hop.collective = collective;
  hop.exchange = std::move(exchange);
  hop.deadline = deadline;
  Enqueue(std::move(hop));
  const absl::Status status = AwaitSequence(last_sequence_);
  // The buffers are a collective's own: after a failure they must outlive what is still being moved.
  while (running_) finished_.Wait(mutex_);
  return status;
}

absl::Status HostCommunicator::AllReduce(const Matrix& values) {
  if (!values.contiguous() || (values.type != DType::kF32 && values.type != DType::kF64)) {
    return absl::InvalidArgumentError("AllReduce takes contiguous fp32 or fp64 values only");
  }
  METP_ASSIGN_OR_RETURN(const TimePoint deadline, StartCollective());
  return RingAllReduce(rank_, size_, values, [&](Exchange exchange) {
    return RunCollectiveHop("all-reduce", std::move(exchange), deadline);
  });
}

absl::Status HostCommunicator::Barrier() {
  METP_ASSIGN_OR_RETURN(const TimePoint deadline, StartCollective());
  // After t hops a rank knows that the t ranks before it have come here.
  int32_t token = 0, arrived = 0;
  const auto one = [](int32_t* at) { return Matrix{at, 1, 1, 1, DType::kI32}; };
  for (int t = 1; t < size_; ++t) {
    METP_RETURN_IF_ERROR(RunCollectiveHop("barrier", {{one(&token)}, {one(&arrived)}}, deadline));
  }
  return absl::OkStatus();
}

void HostCommunicator::Abort(absl::Status reason) {
  if (reason.ok()) reason = absl::CancelledError("aborted");
  MutexLock lock(mutex_);
  Fail(reason);
}

void HostCommunicator::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  finished_.NotifyAll();
  posted_.NotifyAll();
  transport_->Cancel(failure_);
}

std::vector<HopRecord> HostCommunicator::TakeRecords() {
  MutexLock lock(mutex_);
  return std::exchange(records_, {});
}

void HostCommunicator::RunHops() {
  pthread_setname_np(pthread_self(), "metp-comm");
  while (true) {
    Hop hop;
    {
      MutexLock lock(mutex_);
      while (!stop_ && failure_.ok() && queue_.empty()) posted_.Wait(mutex_);
      if (stop_ || !failure_.ok()) return;
      hop = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
    }
    if (hop.deadline == TimePoint()) hop.deadline = Now() + options_.deadline;
    const absl::StatusOr<HopTimes> times = transport_->Run(hop);
    MutexLock lock(mutex_);
    running_ = false;
    finished_.NotifyAll();
    if (!times.ok()) {
      Fail(times.status());
      return;
    }
    done_sequence_ = hop.sequence;
    if (hop.id != 0) {
      done_id_ = hop.id;
      done_.push_back({hop.id, TotalBytes(hop.exchange.sends), *times});
    }
  }
}

}  // namespace metp
