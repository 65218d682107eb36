#include "tests/cuda_emulation/faults.h"

#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {
namespace {

constexpr size_t kKept = 64;

struct Faults {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::set<std::pair<std::string, std::string>> known;
};
Faults& All() {
  static Faults* const faults = new Faults;  // outlives the threads of streams
  return *faults;
}

}  // namespace

void AddFault(const std::string& kind, const std::string& operation, const std::string& text) {
  Faults& faults = All();
  const std::lock_guard lock(faults.mutex);
  if (faults.lines.size() >= kKept || !faults.known.emplace(kind, operation).second) return;
  faults.lines.push_back(kind + ": " + text);
}

std::vector<std::string> TakeFaults() {
  Faults& faults = All();
  const std::lock_guard lock(faults.mutex);
  faults.known.clear();
  return std::exchange(faults.lines, {});
}

}  // namespace metp::emulation
