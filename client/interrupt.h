#pragma once

// ^C as an event: while one of these lives, SIGINT and SIGTERM call `action` on a thread of its own instead
// of ending the process. A second one ends it.

#include <functional>
#include <thread>

namespace metp {

class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> action);
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  std::thread thread_;
};

}  // namespace metp
