#pragma once

// Room on the file systems of checkpoints. Those may be network volumes that do not answer for hours, so a thread of its own
// asks, and nobody waits for it: readers get the last answer. The thread is detached and owns all that it touches, so a
// question that stays unanswered keeps no destructor and no process. Thread-safe.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/support/disk_room.h"

namespace metp {

class DiskWatch {
 public:
  using Ask = std::function<std::optional<DiskRoom>(const std::string&)>;
  class Folder {
   public:
    virtual ~Folder() = default;
    /// The last answer; before the first: none.
    virtual std::optional<DiskRoom> Last() const = 0;
  };

  /// `ask` outlives this: it is called on the thread. Between its rounds: `every`.
  explicit DiskWatch(Ask ask = RoomOf, std::chrono::milliseconds every = std::chrono::seconds(30));
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  /// Asked at once, then every round for as long as the result is held.
  std::shared_ptr<const Folder> Watch(const std::string& folder);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace metp
