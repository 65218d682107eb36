#pragma once

// The emulated NCCL: communicators whose ranks are threads of one process. Names, numbers and meanings are the real ones; no
// more of the library than the backend calls. What tests can do to it: emulated_nccl.h.
//
// A communicator that does not block (ncclConfig_t::blocking = 0) keeps what was issued to itself until it has been polled:
// after ncclGroupEnd answered ncclInProgress, nothing is on the stream before ncclCommGetAsyncError says ncclSuccess.

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>

#define NCCL_VERSION_CODE 22809  // a macro, as sources ask for it with #if

inline constexpr int NCCL_UNIQUE_ID_BYTES = 128;
inline constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

using ncclComm_t = struct ncclComm*;

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8,
};

enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclNumTypes = 12,
};

/// Made from NCCL_CONFIG_INITIALIZER. All but `blocking` goes unheeded.
struct ncclConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
};

inline constexpr ncclConfig_t NCCL_CONFIG_INITIALIZER = {sizeof(ncclConfig_t),  // size
                                                         0xcafebeef,            // magic
                                                         NCCL_VERSION_CODE,     // version
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         nullptr,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         nullptr,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT,
                                                         NCCL_CONFIG_UNDEF_INT};

ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
/// The sum of fp32, fp64 or int32, in the order of ranks: the same bits everywhere.
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
