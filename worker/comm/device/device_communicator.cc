#include "worker/comm/device/device_communicator.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kWatchPeriod{20};  // how late a failure that shows by itself is noticed

/// A range on the profiler's timeline of this thread.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~ProfilerRange() { nvtxRangePop(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

void DropEmpty(std::vector<Matrix>& transfers) {
  std::erase_if(transfers, [](const Matrix& transfer) { return transfer.empty(); });
}

bool Contiguous(const std::vector<Matrix>& transfers) {
  return std::all_of(transfers.begin(), transfers.end(), [](const Matrix& m) { return m.contiguous(); });
}

bool OnDevice(const void* data) {
  cudaPointerAttributes attributes = {};
  METP_CUDA(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(int rank, int size, std::shared_ptr<CommunicationStream> stream,
                                       std::unique_ptr<DeviceTransport> transport,
                                       CommunicatorOptions options)
    : rank_(rank),
      size_(size),
      options_(options),
      stream_(std::move(stream)),
      backend_(stream_->backend()),
      transport_(std::move(transport)),
      token_(backend_.Allocate(1, 1, DType::kF32, MemoryCategory::kWorkspace)) {
  backend_.Fill(token_, 0);
  transport_->Listen(this);
  watchdog_ = std::thread([this] { Watch(); });
}

DeviceCommunicator::~DeviceCommunicator() {
  std::optional<Event> last;
  bool unfinished;
  {
    MutexLock lock(mutex_);
    unfinished = !log_.all_awaited();
    if (const HopLog::Hop* hop = log_.Find(log_.last()); hop != nullptr) last = hop->done;
  }
  if (unfinished) {
    Fail(absl::CancelledError(absl::StrCat("rank ", rank_, " left the ring with hops unfinished")));
  } else if (last) {
    AwaitOnHost(*last, "the last hop", TimePoint::max()).IgnoreError();  // the watchdog keeps its deadline
  }
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  watchdog_.join();
  transport_.reset();  // tells the listener nothing from here on
  stream_->Drain();
}

HopId DeviceCommunicator::Post(Exchange exchange, const Event& after) {
  DropEmpty(exchange.sends);
  DropEmpty(exchange.receives);
  HopId id;
  {
    MutexLock lock(mutex_);
    id = log_.Post(exchange).id;
    if (!failure_.ok()) return id;
  }
  if (!Contiguous(exchange.sends) || !Contiguous(exchange.receives)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("hop ", id, ": a transfer is not contiguous")));
    return id;
  }
  const ProfilerRange range(absl::StrCat("hop ", id));
  const absl::Status status = Caught([&] { return transport_->Enqueue({id, std::move(exchange), after}); });
  if (!status.ok()) Fail(status);
  return id;
}

void DeviceCommunicator::Started(HopId hop, Event ready) {
  MutexLock lock(mutex_);
  log_.Find(hop)->ready = std::move(ready);
}

void DeviceCommunicator::Enqueued(HopId hop, Event done) {
  MutexLock lock(mutex_);
  log_.Find(hop)->done = std::move(done);
  changed_.NotifyAll();
}

absl::Status DeviceCommunicator::Await(HopId id) {
  Event before, after;
  absl::Status status = Caught([&] {
    before = backend_.Record();
    return absl::OkStatus();
  });
  if (!status.ok()) return FailAndEnd(status);
  Event done;
  {
    MutexLock lock(mutex_);
    if (id == 0 || id > log_.last()) {
      return absl::InvalidArgumentError(
          absl::StrCat("hop ", id, " was never posted; the last one is ", log_.last()));
    }
    const HopLog::Hop* hop = log_.Find(id);
    while (failure_.ok() && hop != nullptr && !hop->done) changed_.Wait(mutex_);
    if (failure_.ok()) {
      if (hop == nullptr || hop->awaited) return absl::OkStatus();
      done = *hop->done;
    }
  }
  if (!failure().ok()) return Ended();
  status = Caught([&] {
    stream_->MakeComputeWaitFor(done);
    after = backend_.Record();
    return absl::OkStatus();
  });
  if (!status.ok()) return FailAndEnd(status);
  {
    MutexLock lock(mutex_);
    log_.Await(*log_.Find(id), std::move(before), std::move(after));
    if (failure_.ok()) return absl::OkStatus();
  }
  return Ended();
}

absl::Status DeviceCommunicator::AllReduce(const Matrix& values) {
  if (!values.contiguous() || (values.type != DType::kF32 && values.type != DType::kF64)) {
    return absl::InvalidArgumentError("AllReduce takes contiguous fp32 or fp64 values only");
  }
  if (values.empty()) return failure();
  bool on_device = false;
  const absl::Status status = Caught([&] {
    on_device = OnDevice(values.data);
    return absl::OkStatus();
  });
  if (!status.ok()) return FailAndEnd(status);
  return on_device ? Sum("all-reduce", values) : SumFromHost("all-reduce", values);
}

absl::Status DeviceCommunicator::Barrier() { return Sum("barrier", token_); }

absl::Status DeviceCommunicator::Sum(const char* what, const Matrix& values) {
  METP_RETURN_IF_ERROR(AwaitAllEnqueued());
  Event start, end;
  absl::Status status = Caught([&]() -> absl::Status {
    stream_->WaitForCompute();
    start = stream_->Record();
    METP_RETURN_IF_ERROR(transport_->AllReduce(values));
    end = stream_->Record();
    return absl::OkStatus();
  });
  if (!status.ok()) return FailAndEnd(status);
  // What compute is given from here on comes behind the sum, since the host waits for it.
  METP_RETURN_IF_ERROR(AwaitOnHost(start, what, TimePoint::max()));
  METP_RETURN_IF_ERROR(AwaitOnHost(end, what, steady_clock::now() + options_.deadline));
  status = transport_->Poll();  // what has failed may have come to an end all the same
  return status.ok() ? status : FailAndEnd(status);
}

absl::Status DeviceCommunicator::SumFromHost(const char* what, const Matrix& values) {
  Tensor staged;
  absl::Status status = Caught([&] {
    staged = backend_.Allocate(values.rows, values.cols, values.type, MemoryCategory::kTransient);
    backend_.CopyFromHost(values.data, staged);
    return absl::OkStatus();
  });
  if (!status.ok()) return FailAndEnd(status);
  METP_RETURN_IF_ERROR(Sum(what, staged));
  status = Caught([&] {
    backend_.CopyToHost(staged, values.data);
    return absl::OkStatus();
  });
  return status.ok() ? status : FailAndEnd(status);
}

absl::Status DeviceCommunicator::AwaitAllEnqueued() {
  {
    MutexLock lock(mutex_);
    const HopLog::Hop* last = log_.Find(log_.last());  // null: long done
    while (failure_.ok() && last != nullptr && !last->done) changed_.Wait(mutex_);
    if (failure_.ok()) return absl::OkStatus();
  }
  return Ended();
}

absl::Status DeviceCommunicator::AwaitOnHost(const Event& event, const char* what, TimePoint deadline) {
  const absl::Status status = AwaitPassed(event, [&] {
    absl::Status known = failure();
    if (!known.ok() || steady_clock::now() < deadline) return known;
    return absl::DeadlineExceededError(absl::StrCat(
        what, ": rank ", rank_, " waited for the other ranks of its ring until the deadline of ",
        options_.deadline.count(), " ms passed; the log of the rank that did not come says why"));
  });
  if (!status.ok()) return FailAndEnd(status);
  return failure().ok() ? status : Ended();  // a failure ends what is enqueued
}

void DeviceCommunicator::Abort(absl::Status reason) {
  Fail(reason.ok() ? absl::CancelledError("aborted") : reason);
}

absl::Status DeviceCommunicator::failure() {
  MutexLock lock(mutex_);
  return failure_;
}

void DeviceCommunicator::Fail(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
    changed_.NotifyAll();
  }
  transport_->Abort(status);
  MutexLock lock(mutex_);
  aborted_ = true;
  changed_.NotifyAll();
}

absl::Status DeviceCommunicator::Ended() {
  {
    MutexLock lock(mutex_);
    while (!aborted_) changed_.Wait(mutex_);
  }
  stream_->Drain();
  return failure();
}

absl::Status DeviceCommunicator::FailAndEnd(const absl::Status& status) {
  Fail(status);
  return Ended();
}

std::vector<HopRecord> DeviceCommunicator::TakeRecords() {
  Event last;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok() || log_.LastWait() == nullptr) return {};
    last = *log_.LastWait();
  }
  if (!AwaitOnHost(last, "the last hop", TimePoint::max()).ok()) return {};
  std::vector<double> mine;
  {
    MutexLock lock(mutex_);
    mine = log_.Measure(backend_);
  }
  std::vector<HopLog::Neighbours> neighbours;
  if (size_ > 1 && !transport_->alone() && !mine.empty()) {
    absl::StatusOr<std::vector<HopLog::Neighbours>> theirs = ExchangeDurations(mine);
    if (!theirs.ok()) return {};  // the result of whatever is called next
    neighbours = *std::move(theirs);
  }
  MutexLock lock(mutex_);
  return log_.Take(backend_, neighbours);
}

absl::StatusOr<std::vector<HopLog::Neighbours>> DeviceCommunicator::ExchangeDurations(
    const std::vector<double>& mine) {
  // Every rank fills its own row of a table of zeros; the sum over the ranks is the whole table, exactly.
  const int64_t hops = mine.size();
  std::vector<float> table(size_ * hops);
  const auto row = [&](int rank) { return table.begin() + (rank + size_) % size_ * hops; };
  std::copy(mine.begin(), mine.end(), row(rank_));
  METP_RETURN_IF_ERROR(
      SumFromHost("the exchange of hop times", {table.data(), size_, hops, hops, DType::kF32}));
  std::vector<HopLog::Neighbours> neighbours;
  for (int64_t i = 0; i < hops; ++i) neighbours.push_back({row(rank_ - 1)[i], row(rank_ + 1)[i]});
  return neighbours;
}

void DeviceCommunicator::Watch() {
  pthread_setname_np(pthread_self(), "metp-comm-watch");
  cudaSetDevice(backend_.device());
  const milliseconds period = std::clamp(options_.deadline / 10, milliseconds(1), kWatchPeriod);
  while (true) {
    absl::Status status = transport_->Poll();
    {
      MutexLock lock(mutex_);
      if (status.ok()) status = LookAtHopInHand();
      if (status.ok() && !stop_ && failure_.ok()) changed_.WaitUntil(mutex_, steady_clock::now() + period);
      if (stop_ || !failure_.ok()) return;
    }
    if (!status.ok()) {
      Fail(status);
      return;
    }
  }
}

absl::Status DeviceCommunicator::LookAtHopInHand() {
  while (HopLog::Hop* hop = log_.InHand()) {
    if (!hop->ready) break;
    if (hop->done) {
      METP_ASSIGN_OR_RETURN(hop->passed, Passed(*hop->done));
      if (hop->passed) continue;
    }
    if (!hop->since) {
      METP_ASSIGN_OR_RETURN(const bool ready, Passed(*hop->ready));
      if (ready) hop->since = steady_clock::now();
    } else if (steady_clock::now() > *hop->since + options_.deadline) {
      return DeadlinePassed(*hop);
    }
    break;
  }
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::DeadlinePassed(const HopLog::Hop& hop) const {
  std::vector<std::string> peers;
  if (hop.receives)
    peers.push_back(absl::StrCat("rank ", (rank_ + size_ - 1) % size_, ", which sends to it"));
  if (hop.sends) peers.push_back(absl::StrCat("rank ", (rank_ + 1) % size_, ", which receives from it"));
  const std::string whom = peers.empty()       ? "its own device"
                           : peers.size() == 1 ? peers[0]
                                               : absl::StrCat(peers[0], ", or ", peers[1]);
  return absl::DeadlineExceededError(
      absl::StrCat("hop ", hop.id, ": rank ", rank_, " waited for ", whom, ", until the deadline of ",
                   options_.deadline.count(),
                   " ms passed; the log of that rank says whether it is still there, and where"));
}

}  // namespace metp::cuda
