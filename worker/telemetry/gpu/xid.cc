#include "worker/telemetry/gpu/xid.h"

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// By docs.nvidia.com/deploy/xid-errors; nullptr: not one of the common ones.
const char* Meaning(int xid) {
  switch (xid) {
    case 13:
      return "a kernel used an instruction or an address that is not allowed";
    case 31:
      return "a kernel touched memory that is not mapped";
    case 43:
      return "the GPU has stopped this program's work after an error of it";
    case 45:
      return "work was thrown away, as its program ended or after an earlier error";
    case 48:
      return "a memory error that could not be corrected";
    case 63:
      return "a faulty memory row is to be replaced at the next reset";
    case 64:
      return "a faulty memory row could not be replaced: the GPU needs service";
    case 74:
      return "an NVLink error";
    case 79:
      return "the GPU has fallen off the bus";
    case 94:
      return "a memory error that could not be corrected, contained to this program";
    case 95:
      return "a memory error that could not be corrected nor contained: the GPU needs a reset";
    case 119:
      return "the GPU's system processor does not answer: it needs a reset";
    default:
      return nullptr;
  }
}

}  // namespace

std::string DescribeXid(int xid) {
  const char* meaning = Meaning(xid);
  return meaning == nullptr ? absl::StrCat("Xid ", xid) : absl::StrCat("Xid ", xid, " (", meaning, ")");
}

}  // namespace metp
