#include "worker/comm/nccl/nccl_error.h"

#include "absl/strings/str_cat.h"

namespace metp::nccl {

absl::Status ToStatus(ncclResult_t result, const std::string& context, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string text = absl::StrCat(context, ": NCCL: ", ncclGetErrorString(result));
  const char* last = ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  if (result == ncclRemoteError || result == ncclSystemError) {
    return absl::UnavailableError(absl::StrCat(
        text, "; the log of the neighbour that is gone says why, NCCL_DEBUG=WARN tells more of the network"));
  }
  return absl::InternalError(text);
}

std::string VersionText(int version) {
  const int major = version < 10000 ? 1000 : 10000;  // until 2.8 a digit less
  return absl::StrCat(version / major, ".", version % major / 100, ".", version % 100);
}

}  // namespace metp::nccl
