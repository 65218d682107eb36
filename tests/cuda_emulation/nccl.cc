// The emulated NCCL's calls: arguments are checked, groups gathered on the calling thread and put on their streams; what
// happens there is NcclWorld's.

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/nccl_world.h"

using metp::emulation::NcclOperation;
using metp::emulation::NcclWorld;

/// One rank's handle. Used by the rank's thread; GetAsyncError and Abort also by others.
struct ncclComm {
  ncclUniqueId id;
  std::shared_ptr<NcclWorld> world;
  int rank = 0, device = 0;
  bool blocking = true;
  int64_t sums = 0;
  std::map<int, int64_t> sends, receives;  // by peer: how many so far

  using Groups = std::map<cudaStream_t, std::vector<NcclOperation>>;
  std::mutex mutex;
  Groups waiting;      // issued, and not on their streams before they were polled for
  int polls_left = 0;  // until they are
};

namespace {

constexpr char kIdMark[] = "emulated nccl";

struct Call {
  ncclComm_t comm;
  cudaStream_t stream;
  NcclOperation operation;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local std::string last_error;

ncclResult_t Refuse(ncclResult_t result, const std::string& why) {
  last_error = why;
  return result;
}

ncclResult_t StateOf(ncclComm_t comm) {
  const ncclResult_t state = comm->world->State(comm->rank);
  if (state != ncclSuccess) return state;
  const std::lock_guard lock(comm->mutex);
  return comm->waiting.empty() ? ncclSuccess : ncclInProgress;
}

/// What every call but GetAsyncError and Abort wants.
ncclResult_t CheckReady(ncclComm_t comm) {
  if (comm == nullptr) return Refuse(ncclInvalidArgument, "comm is null");
  const ncclResult_t state = StateOf(comm);
  if (state != ncclInProgress) return state;
  return Refuse(ncclInvalidArgument,
                "the communicator is used before its previous operation returned ncclSuccess");
}

void PutOnStreams(ncclComm_t comm, const ncclComm::Groups& groups) {
  for (const auto& [stream, operations] : groups) {
    comm->world->Issue(comm->rank);
    metp::emulation::Enqueue(
        stream, "nccl",
        [world = comm->world, rank = comm->rank, operations = operations] { world->Run(rank, operations); });
  }
}

/// Numbers the calls, and puts them on their streams or aside.
ncclResult_t Issue(ncclComm_t comm, const std::vector<Call>& calls) {
  ncclComm::Groups groups;
  for (const Call& call : calls) {
    if (call.comm != comm) continue;
    NcclOperation operation = call.operation;
    operation.number = operation.kind == NcclOperation::Kind::kSend      ? comm->sends[operation.peer]++
                       : operation.kind == NcclOperation::Kind::kReceive ? comm->receives[operation.peer]++
                                                                         : comm->sums++;
    groups[call.stream].push_back(operation);
  }
  if (comm->blocking) {
    PutOnStreams(comm, groups);
    return ncclSuccess;
  }
  const std::lock_guard lock(comm->mutex);
  comm->waiting = std::move(groups);
  comm->polls_left = 1;
  return ncclInProgress;
}

ncclResult_t EndGroup() {
  const std::vector<Call> calls = std::exchange(group, {});
  if (const ncclResult_t error = std::exchange(group_error, ncclSuccess); error != ncclSuccess) return error;
  std::vector<ncclComm_t> comms;
  for (const Call& call : calls) {
    if (std::find(comms.begin(), comms.end(), call.comm) == comms.end()) comms.push_back(call.comm);
  }
  ncclResult_t result = ncclSuccess;
  for (const ncclComm_t comm : comms) {
    if (const ncclResult_t one = Issue(comm, calls); one != ncclSuccess) result = one;
  }
  return result;
}

ncclResult_t Check(const NcclOperation& operation, ncclComm_t comm) {
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  if (metp::emulation::NcclBytes(operation.type) == 0) return Refuse(ncclInvalidArgument, "no such type");
  if (operation.peer < 0 || operation.peer >= comm->world->ranks()) {
    return Refuse(ncclInvalidArgument, "peer " + std::to_string(operation.peer) + " is not a rank");
  }
  const bool reads = operation.kind != NcclOperation::Kind::kReceive;
  const bool writes = operation.kind != NcclOperation::Kind::kSend;
  if (operation.count > 0 && ((reads && operation.from == nullptr) || (writes && operation.to == nullptr))) {
    return Refuse(ncclInvalidArgument, "a buffer is null");
  }
  return ncclSuccess;
}

/// One call, in the group that is open or as one of its own.
ncclResult_t Add(const NcclOperation& operation, ncclComm_t comm, cudaStream_t stream) {
  const ncclResult_t result = Check(operation, comm);
  if (result == ncclSuccess) group.push_back({comm, stream, operation});
  if (group_depth == 0) return result == ncclSuccess ? EndGroup() : result;
  if (group_error == ncclSuccess) group_error = result;
  return result;
}

void Free(ncclComm_t comm) {
  comm->world->Leave(comm->id, comm->rank);
  delete comm;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr) {
    if (const std::string text = comm->world->Error(comm->rank); !text.empty()) last_error = text;
  }
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return ncclInvalidArgument;
  static std::mutex mutex;
  static uint64_t given = 0;
  const std::lock_guard lock(mutex);
  *id = {};
  ++given;
  std::memcpy(id->internal, kIdMark, sizeof(kIdMark));
  std::memcpy(id->internal + sizeof(id->internal) - sizeof(given), &given, sizeof(given));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks) {
    return Refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(nranks));
  }
  *comm = nullptr;
  if (std::memcmp(id.internal, kIdMark, sizeof(kIdMark)) != 0) {
    return Refuse(ncclInvalidArgument, "the unique id is not one");
  }
  if (config != nullptr &&
      (config->magic != NCCL_CONFIG_INITIALIZER.magic || config->size != sizeof(*config) ||
       (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking >> 1 != 0))) {
    return Refuse(ncclInvalidArgument, "the configuration was not initialised");
  }
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  const std::shared_ptr<NcclWorld> world = NcclWorld::Of(id, nranks);
  if (rank >= world->ranks()) return Refuse(ncclInvalidUsage, "the number of ranks differs");
  auto made = std::make_unique<ncclComm>();
  made->id = id;
  made->world = world;
  made->rank = rank;
  made->device = device;
  made->blocking = config == nullptr || config->blocking != 0;
  world->Join(rank, device, nranks);
  *comm = made.release();
  if (!(*comm)->blocking) return ncclInProgress;
  world->WaitWhileInProgress(rank);
  const ncclResult_t state = world->State(rank);
  if (state == ncclSuccess) return state;
  last_error = world->Error(rank);
  Free(std::exchange(*comm, nullptr));
  return state;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  comm->world->Finalize(comm->rank);
  if (!comm->blocking) return ncclInProgress;
  comm->world->WaitWhileInProgress(comm->rank);
  return comm->world->State(comm->rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->world->Drain(comm->rank);
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->world->Abort(comm->rank);
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = comm->world->State(comm->rank);
  if (*error != ncclSuccess) return ncclSuccess;
  const std::lock_guard lock(comm->mutex);
  if (comm->waiting.empty()) return ncclSuccess;
  if (comm->polls_left-- > 0) {
    *error = ncclInProgress;
  } else {
    PutOnStreams(comm, std::exchange(comm->waiting, {}));
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  if (count == nullptr) return ncclInvalidArgument;
  *count = comm->world->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  if (rank == nullptr) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  if (device == nullptr) return ncclInvalidArgument;
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return Refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --group_depth == 0 ? EndGroup() : ncclSuccess;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  NcclOperation operation = {NcclOperation::Kind::kSend, from, nullptr, count, type, peer, 0};
  return Add(operation, comm, stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  NcclOperation operation = {NcclOperation::Kind::kReceive, nullptr, to, count, type, peer, 0};
  return Add(operation, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  const bool known = type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32;
  if (operation != ncclSum || !known)
    return Refuse(ncclInvalidArgument, "the emulated library sums fp32, fp64, int32");
  return Add({NcclOperation::Kind::kSum, from, to, count, type, 0, 0}, comm, stream);
}
