// Words for what the checks of shadow.h find.

#include <dlfcn.h>

#include <cstdio>

#include "tests/cuda_emulation/fault_text.h"
#include "tests/cuda_emulation/faults.h"
#include "tests/cuda_emulation/memory.h"
#include "tests/cuda_emulation/shadow.h"

extern "C" {
extern const char __executable_start, _end;  // the linker's: the program's image
}

namespace metp::emulation {
namespace {

enum Kind : uint32_t { kOutOfBounds = 1, kUninitialised = 2, kRace = 4, kMisaligned = 8 };

/// True once for each kind and operation; further ones need no words.
bool First(Kind kind) {
  if ((here.reported & kind) != 0) return false;
  here.reported |= kind;
  return true;
}

std::string Place(uintptr_t at) {
  if (InDevice(reinterpret_cast<const void*>(at))) return DescribeAddress(at);
  const uintptr_t offset = at - here.shared_base;
  const std::string size = std::to_string(here.shared_bytes) + " bytes of shared memory";
  if (offset < here.shared_bytes) return "at " + std::to_string(offset) + " of the block's " + size;
  return "at " + std::to_string(offset - here.shared_bytes) + " past the end of the block's " + size;
}

std::string What(uintptr_t at, size_t bytes, bool write) {
  return std::string(write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes " + Place(at);
}

const Operation& InHand() { return OperationAt(here.operation); }

/// Reports come from inside kernels, and what they call may be instrumented code: it is not the kernel's.
class Aside {
 public:
  Aside() { here.in_kernel = false; }
  ~Aside() { here.in_kernel = in_kernel_; }

 private:
  const bool in_kernel_ = here.in_kernel;
};

bool InProgram(uintptr_t at) {
  if (at >= reinterpret_cast<uintptr_t>(&__executable_start) && at < reinterpret_cast<uintptr_t>(&_end))
    return true;
  Dl_info info;
  return dladdr(reinterpret_cast<const void*>(at), &info) != 0;  // a shared library's constants
}

}  // namespace

std::string DescribeActor(uint64_t stamp) {
  const Actor& actor = ActorAt(stamp >> kActorShift);
  const Operation& operation = OperationAt(actor.operation);
  std::string text = NameOf(operation);
  if (operation.kernel != nullptr) {
    const uint32_t thread = static_cast<uint32_t>((stamp & kThreadMask) >> kThreadShift);
    text += ", block " + Coordinates(actor.block, operation.grid) + " thread " +
            Coordinates(thread, operation.block);
  }
  return text;
}

void TouchUnwatched(uintptr_t at, size_t bytes, bool write) {
  if (at - here.parameters_low < here.parameters_bytes || OwnVariable(at) || InProgram(at)) return;
  const Aside aside;
  if (!First(kOutOfBounds)) return;
  AddFault("out of bounds", NameOf(InHand()),
           DescribeActor(here.stamp) + ", " + (write ? "write" : "read") + " of " + std::to_string(bytes) +
               " bytes that are not the device's");
}

void TouchFromHost(uintptr_t at, size_t bytes, bool write) {
  if (IsHostMemory(at)) return;
  AddFault("out of bounds", "host", "host code, " + What(at, bytes, write));
}

void ReportStates(uintptr_t at, const uint8_t* states, size_t bytes, bool write) {
  const Aside aside;
  size_t bad = 0;
  while (bad < bytes && states[bad] == kWritten) ++bad;
  for (size_t i = bad; i < bytes; ++i) {
    if (states[i] == kOutside) {
      if (First(kOutOfBounds)) {
        AddFault("out of bounds", NameOf(InHand()),
                 DescribeActor(here.stamp) + ", " + What(at, bytes, write) +
                     (i == 0 ? "" : "; byte " + std::to_string(i) + " of it lies " + Place(at + i)));
      }
      return;
    }
  }
  if (write || bad == bytes || !First(kUninitialised)) return;
  AddFault("uninitialised", NameOf(InHand()),
           DescribeActor(here.stamp) + ", " + What(at, bytes, write) +
               (bad == 0 ? "" : "; byte " + std::to_string(bad) + " of it") + ", which nothing wrote");
}

void ReportRace(uintptr_t at, uint64_t mine, bool write, uint64_t other, bool other_wrote) {
  const Aside aside;
  if (!First(kRace)) return;
  const size_t bytes = static_cast<size_t>(__builtin_popcountll(mine & kAllBytes));
  AddFault("race", NameOf(InHand()),
           DescribeActor(mine) + ", " + What(at, bytes, write) + ", which " + DescribeActor(other) + " " +
               (other_wrote ? "wrote" : "read") + ": nothing orders the two");
}

void ReportMisaligned(uintptr_t at, size_t bytes, bool write) {
  const Aside aside;
  if (!First(kMisaligned)) return;
  AddFault("misaligned", NameOf(InHand()), DescribeActor(here.stamp) + ", " + What(at, bytes, write));
}

}  // namespace metp::emulation
