#include "worker/comm/transport.h"

#include "absl/strings/str_cat.h"

namespace metp {

std::string HopName(const Hop& hop) {
  return hop.collective ? std::string(hop.collective) : absl::StrCat("hop ", hop.id);
}

int64_t TotalBytes(const std::vector<Matrix>& transfers) {
  int64_t bytes = 0;
  for (const Matrix& transfer : transfers) bytes += transfer.bytes();
  return bytes;
}

}  // namespace metp
