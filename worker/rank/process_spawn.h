#pragma once

// fork and exec, done so that a program with many threads may: between the two the child makes nothing but
// system calls.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/rank/descriptor.h"

namespace metp {

/// What the parent holds of a child.
struct SpawnedChild {
  pid_t pid = -1;
  Descriptor pidfd;
  Descriptor socket;  // non-blocking; the child's end is its descriptor 3
  Descriptor output;  // non-blocking; read end of its stdout and stderr
};

inline constexpr int kChildSocket = 3;

/// Starts argv[0] (a path) as process.h says. The child is killed when the calling *thread* ends. NotFound,
/// PermissionDenied: it cannot be executed.
absl::StatusOr<SpawnedChild> SpawnChild(const std::vector<std::string>& argv,
                                        const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace metp
