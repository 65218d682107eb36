#include "worker/telemetry/gpu/xid.h"

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// What has happened, and what an operator is to do where ending the program does not clear it. By
/// docs.nvidia.com/deploy/xid-errors; nullptr: not one of the common ones.
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
      return "a faulty memory row is to be replaced: at the GPU's next reset";
    case 64:
      return "a faulty memory row could not be replaced: the GPU needs service";
    case 74:
      return "an NVLink error: reset the GPU, and look at the link if it comes again";
    case 79:
      return "the GPU has fallen off the bus: restart the machine";
    case 92:
      return "many memory errors that were corrected: watch this GPU";
    case 94:
      return "a memory error that could not be corrected, contained to this program";
    case 95:
      return "a memory error that could not be corrected nor contained: reset the GPU";
    case 109:
      return "work on the GPU did not end in its time: reset the GPU if it comes again";
    case 119:
      return "the GPU's system processor does not answer: reset the GPU or restart the machine";
    case 120:
      return "the GPU's system processor has failed: reset the GPU or restart the machine";
    case 140:
      return "memory errors that the driver could not recover from: reset the GPU";
    case 144:
    case 145:
    case 146:
    case 147:
    case 148:
    case 149:
    case 150:
      return "an NVLink error: reset the GPU, with all that it is linked to, and look at the link if it "
             "comes again";
    case 154:
      return "the driver asks for an action: its log says whether reset or restart";
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
