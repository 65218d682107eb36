#include "worker/comm/nccl/nccl_peers.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/status_macros.h"
#include "proto/support/version.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/comm/nccl/nccl_error.h"

namespace metp::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kIdKey[] = "nccl/id";
constexpr char kError[] = "error: ";

std::string RankKey(int rank) { return absl::StrCat("nccl/rank/", rank); }

milliseconds Left(steady_clock::time_point deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()));
}

bool SameDevice(const RankFacts& a, const RankFacts& b) {
  return a.uuid == b.uuid || (a.host == b.host && a.bus == b.bus);
}

absl::Status CheckPair(int i, const RankFacts& a, int j, const RankFacts& b) {
  if (a.version != b.version) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", i, " on ", a.host, " is of metp ", a.version,
                                                      ", rank ", j, " on ", b.host, " of ", b.version,
                                                      ": all workers of a job need the same version"));
  }
  if (a.nccl_version != b.nccl_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", i, " on ", a.host, " has NCCL ", VersionText(a.nccl_version), ", rank ", j, " on ", b.host,
        " has ", VersionText(b.nccl_version), ": all workers of a job need the same one"));
  }
  if (SameDevice(a, b)) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", i, " and rank ", j, " are both on GPU ",
                                                      b.device, " (", b.uuid, ", ", b.bus, ") of host ",
                                                      b.host, ": one worker per GPU"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeId() {
  ncclUniqueId id;
  METP_RETURN_IF_ERROR(ToStatus(ncclGetUniqueId(&id), "rank 0 makes the ring's unique id"));
  return absl::BytesToHexString({id.internal, sizeof id.internal});
}

}  // namespace

RankFacts FactsOf(int device) {
  RankFacts facts;
  facts.version = kVersion;
  ncclGetVersion(&facts.nccl_version);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  facts.host = host;
  facts.device = device;
  char bus[32] = {};
  METP_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
  facts.bus = bus;
  cudaDeviceProp properties = {};
  METP_CUDA(cudaGetDeviceProperties(&properties, device));
  facts.uuid = absl::BytesToHexString({properties.uuid.bytes, sizeof properties.uuid.bytes});
  return facts;
}

std::string ToText(const RankFacts& facts) {
  return absl::StrJoin({facts.version, absl::StrCat(facts.nccl_version), facts.host,
                        absl::StrCat(facts.device), facts.bus, facts.uuid},
                       "\n");
}

absl::StatusOr<RankFacts> FromText(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  RankFacts facts;
  if (lines.size() != 6 || !absl::SimpleAtoi(lines[1], &facts.nccl_version) ||
      !absl::SimpleAtoi(lines[3], &facts.device)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another rank says '", absl::CEscape(text),
                     "' of itself, expected six lines: all workers of a job need the same version of metp"));
  }
  facts.version = lines[0];
  facts.host = lines[2];
  facts.bus = lines[4];
  facts.uuid = lines[5];
  return facts;
}

absl::Status CheckRanks(const std::vector<RankFacts>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].nccl_version < kOldestVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", i, " on ", ranks[i].host, ": found NCCL ", VersionText(ranks[i].nccl_version),
                       ", ", VersionText(kOldestVersion),
                       " or newer is needed: an older libnccl.so.2 comes first in the library path"));
    }
    for (size_t j = 0; j < i; ++j)
      METP_RETURN_IF_ERROR(CheckPair(static_cast<int>(j), ranks[j], static_cast<int>(i), ranks[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<ncclUniqueId> MeetRanks(int rank, int size, const RankFacts& mine, Rendezvous& rendezvous,
                                       steady_clock::time_point deadline) {
  METP_RETURN_IF_ERROR(rendezvous.Put(RankKey(rank), ToText(mine)));
  std::vector<RankFacts> ranks;
  for (int r = 0; r < size; ++r) {
    METP_ASSIGN_OR_RETURN(const std::string text, rendezvous.Get(RankKey(r), Left(deadline)));
    METP_ASSIGN_OR_RETURN(RankFacts facts, FromText(text));
    ranks.push_back(std::move(facts));
  }
  METP_RETURN_IF_ERROR(CheckRanks(ranks));
  if (rank == 0) {
    const absl::StatusOr<std::string> id = MakeId();
    // The others would wait for it.
    METP_RETURN_IF_ERROR(
        rendezvous.Put(kIdKey, id.ok() ? *id : absl::StrCat(kError, std::string(id.status().message()))));
    METP_RETURN_IF_ERROR(id.status());
  }
  METP_ASSIGN_OR_RETURN(const std::string text, rendezvous.Get(kIdKey, Left(deadline)));
  if (text.rfind(kError, 0) == 0) return absl::UnavailableError(text.substr(sizeof kError - 1));
  const std::string bytes = absl::HexStringToBytes(text);
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal)
    return absl::InternalError(absl::StrCat("the ring's unique id has ", bytes.size(), " bytes"));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

}  // namespace metp::nccl
