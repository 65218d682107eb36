#include "worker/daemon/disk_watch.h"

#include <thread>
#include <utility>
#include <vector>

#include "proto/support/mutex.h"

namespace metp {
namespace {

class WatchedFolder : public DiskWatch::Folder {
 public:
  explicit WatchedFolder(std::string path) : path_(std::move(path)) {}
  std::optional<DiskRoom> Last() const override METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_;
  }
  void Set(const std::optional<DiskRoom>& room) METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    last_ = room;
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  mutable Mutex mutex_;
  std::optional<DiskRoom> last_ METP_GUARDED_BY(mutex_);
};

}  // namespace

struct DiskWatch::State {
  State(Ask question, std::chrono::milliseconds between) : ask(std::move(question)), every(between) {}

  const Ask ask;
  const std::chrono::milliseconds every;
  Mutex mutex;
  CondVar wake;
  std::vector<std::weak_ptr<WatchedFolder>> folders METP_GUARDED_BY(mutex);
  bool started METP_GUARDED_BY(mutex) = false, fresh METP_GUARDED_BY(mutex) = false;
  bool ended METP_GUARDED_BY(mutex) = false;

  /// Waits for the next round and says whom to ask in it; none: the end.
  std::optional<std::vector<std::shared_ptr<WatchedFolder>>> Next() METP_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    const auto due = std::chrono::steady_clock::now() + every;
    while (!ended && !fresh && wake.WaitUntil(mutex, due)) {
    }
    if (ended) return std::nullopt;
    fresh = false;
    std::vector<std::shared_ptr<WatchedFolder>> round;
    for (const auto& folder : folders) {
      if (auto held = folder.lock()) round.push_back(std::move(held));
    }
    return round;
  }
  void Run() {
    while (const auto round = Next()) {
      for (const auto& folder : *round) folder->Set(ask(folder->path()));
    }
  }
};

DiskWatch::DiskWatch(Ask ask, std::chrono::milliseconds every)
    : state_(std::make_shared<State>(std::move(ask), every)) {}

DiskWatch::~DiskWatch() {
  MutexLock lock(state_->mutex);
  state_->ended = true;
  state_->wake.NotifyAll();
}

std::shared_ptr<const DiskWatch::Folder> DiskWatch::Watch(const std::string& folder) {
  auto watched = std::make_shared<WatchedFolder>(folder);
  MutexLock lock(state_->mutex);
  std::erase_if(state_->folders, [](const auto& one) { return one.expired(); });
  state_->folders.push_back(watched);
  state_->fresh = true;
  if (!std::exchange(state_->started, true)) std::thread([state = state_] { state->Run(); }).detach();
  state_->wake.NotifyAll();
  return watched;
}

}  // namespace metp
