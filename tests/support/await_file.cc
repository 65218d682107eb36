#include "tests/support/await_file.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace metp {

void AwaitFile(const std::string& path) {
  const int fd = inotify_init1(IN_CLOEXEC);
  if (fd < 0 ||
      inotify_add_watch(fd, std::filesystem::path(path).parent_path().c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    std::abort();
  }
  char events[4096];
  while (!std::filesystem::exists(path)) {
    if (read(fd, events, sizeof events) < 0) std::abort();
  }
  close(fd);
}

}  // namespace metp
