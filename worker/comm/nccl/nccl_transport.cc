#include "worker/comm/nccl/nccl_transport.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/comm/nccl/nccl_error.h"

namespace metp::nccl {
namespace {

using std::chrono::steady_clock;

// For a rank that leaves in peace: the others may be slow to leave, and NCCL's ranks on one node wait for each other.
constexpr std::chrono::seconds kFarewellTime{2};

ncclDataType_t TypeOf(DType type) { return type == DType::kF64 ? ncclFloat64 : ncclFloat32; }

/// Between two looks at what NCCL is doing: issuing a hop takes microseconds, connecting seconds.
void Pause(int look) {
  if (look < 200) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclTransport>> NcclTransport::Connect(
    std::shared_ptr<cuda::CommunicationStream> stream, int rank, int size, const ncclUniqueId& id,
    std::chrono::milliseconds timeout) {
  std::unique_ptr<NcclTransport> self(new NcclTransport(std::move(stream), rank, size, timeout));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  constexpr char kWhat[] = "joining the ring";
  {
    MutexLock lock(self->mutex_);
    const ncclResult_t result = ncclCommInitRankConfig(&self->comm_, size, id, rank, &config);
    METP_RETURN_IF_ERROR(ToStatus(result, self->Context(kWhat)));
  }
  absl::Status status = self->AwaitIssued(kWhat, steady_clock::now() + timeout);
  if (status.ok()) status = self->WarmUp();
  if (status.ok()) return self;
  self->Abort(status);
  return status;
}

NcclTransport::~NcclTransport() {
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  const TimePoint deadline = steady_clock::now() + kFarewellTime;
  ncclResult_t state = ncclCommFinalize(comm_);
  for (int look = 0; state == ncclInProgress && steady_clock::now() < deadline; ++look) {
    Pause(look);
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(comm_);
  } else {
    ncclCommAbort(comm_);
  }
}

absl::Status NcclTransport::WarmUp() {
  constexpr int64_t kFloats = 4;
  return cuda::Caught([&]() -> absl::Status {
    cuda::CudaBackend& backend = stream().backend();
    const Tensor room = backend.Allocate(1, kFloats, DType::kF32, MemoryCategory::kTransient);
    backend.Fill(room, 0);
    stream().WaitForCompute();
    METP_RETURN_IF_ERROR(Transfer({0, {{room->Cols(0, 1)}, {room->Cols(1, 2)}}, {}}));
    METP_RETURN_IF_ERROR(AllReduce(room->Cols(2, 3)));
    const Event done = stream().Record();
    stream().MakeComputeWaitFor(done);
    const TimePoint deadline = steady_clock::now() + timeout_;
    absl::Status status = cuda::AwaitPassed(done, [&] {
      absl::Status known = Poll();
      if (!known.ok() || steady_clock::now() < deadline) return known;
      return absl::DeadlineExceededError(absl::StrCat(Context("the first messages"),
                                                      ": nothing arrived until the deadline passed; ",
                                                      "NCCL_DEBUG=INFO shows the network it uses"));
    });
    if (status.ok()) status = Poll();
    if (!status.ok()) {
      Abort(status);  // before `room` goes
      stream().Drain();
    }
    return status;
  });
}

absl::Status NcclTransport::Transfer(const cuda::DeviceHop& hop) {
  return Issue(absl::StrCat("hop ", hop.id), [&](ncclComm_t comm) {
    ncclGroupStart();
    ncclResult_t result = ncclSuccess;
    const auto keep = [&](ncclResult_t now) { result = result == ncclSuccess ? now : result; };
    for (const Matrix& m : hop.exchange.sends)
      keep(ncclSend(m.data, static_cast<size_t>(m.bytes()), ncclInt8, next(), comm, stream().stream()));
    for (const Matrix& m : hop.exchange.receives)
      keep(ncclRecv(m.data, static_cast<size_t>(m.bytes()), ncclInt8, previous(), comm, stream().stream()));
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? end : result;
  });
}

absl::Status NcclTransport::AllReduce(const Matrix& values) {
  return Issue("all-reduce", [&](ncclComm_t comm) {
    return ncclAllReduce(values.data, values.data, static_cast<size_t>(values.size()), TypeOf(values.type),
                         ncclSum, comm, stream().stream());
  });
}

absl::Status NcclTransport::Issue(const std::string& what,
                                  const std::function<ncclResult_t(ncclComm_t)>& call) {
  {
    MutexLock lock(mutex_);
    if (comm_ == nullptr) return aborted_;
    const ncclResult_t result = call(comm_);
    METP_RETURN_IF_ERROR(ToStatus(result, Context(what), comm_));
    if (result == ncclSuccess) return absl::OkStatus();
  }
  return AwaitIssued(what, steady_clock::now() + timeout_);
}

absl::Status NcclTransport::AwaitIssued(const std::string& what, TimePoint deadline) {
  for (int look = 0;; ++look) {
    {
      MutexLock lock(mutex_);
      METP_ASSIGN_OR_RETURN(const ncclResult_t state, State(what));
      if (state == ncclSuccess) return absl::OkStatus();
    }
    if (steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          Context(what), ": waited for the other ranks until the deadline of ", timeout_.count(),
          " ms passed; is every rank there, and does NCCL use a network that connects their hosts? ",
          "NCCL_DEBUG=INFO shows it, NCCL_SOCKET_IFNAME chooses it"));
    }
    Pause(look);
  }
}

absl::StatusOr<ncclResult_t> NcclTransport::State(const std::string& what) {
  if (comm_ == nullptr) return aborted_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  METP_RETURN_IF_ERROR(ToStatus(asked, Context(what), comm_));
  METP_RETURN_IF_ERROR(ToStatus(state, Context(what), comm_));
  return state;
}

absl::Status NcclTransport::Poll() {
  MutexLock lock(mutex_);
  return State("watching").status();
}

void NcclTransport::Abort(const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  aborted_ = reason;
  ncclCommAbort(comm_);
  comm_ = nullptr;
}

std::string NcclTransport::Context(const std::string& what) const {
  return absl::StrCat(what, ": rank ", rank_, " between rank ", previous(), " and rank ", next());
}

}  // namespace metp::nccl
