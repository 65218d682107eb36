#include "tests/cuda_emulation/nccl_world.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/cuda_emulation/emulated_nccl.h"

namespace metp::emulation {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<NcclWorld>> worlds;  // by id
  std::map<int, std::chrono::milliseconds> delays;           // by device
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;  // outlives the threads of streams
  return *registry;
}

std::string KeyOf(const ncclUniqueId& id) { return std::string(id.internal, sizeof(id.internal)); }

template <typename T>
void AddTo(std::vector<char>& sum, const std::vector<char>& more) {
  for (size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, sum.data() + at, sizeof(T));
    std::memcpy(&y, more.data() + at, sizeof(T));
    x += y;
    std::memcpy(sum.data() + at, &x, sizeof(T));
  }
}

void AddTo(std::vector<char>& sum, const std::vector<char>& more, ncclDataType_t type) {
  if (type == ncclFloat32) AddTo<float>(sum, more);
  if (type == ncclFloat64) AddTo<double>(sum, more);
  if (type == ncclInt32) AddTo<uint32_t>(sum, more);  // wraps
}

void Deliver(const std::vector<char>& bytes, void* to) {
  if (bytes.empty()) return;
  Write(to, bytes.size());
  std::memcpy(to, bytes.data(), bytes.size());
}

}  // namespace

size_t NcclBytes(ncclDataType_t type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? kBytes[type] : 0;
}

void BreakNccl(int device) {
  for (const auto& world : NcclWorld::All()) world->Break(device);
}

void DelayNccl(int device, std::chrono::milliseconds delay) {
  const std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().delays[device] = delay;
}

std::shared_ptr<NcclWorld> NcclWorld::Of(const ncclUniqueId& id, int ranks) {
  const std::lock_guard lock(TheRegistry().mutex);
  auto& world = TheRegistry().worlds[KeyOf(id)];
  if (world == nullptr) world = std::make_shared<NcclWorld>(ranks);
  return world;
}

std::vector<std::shared_ptr<NcclWorld>> NcclWorld::All() {
  const std::lock_guard lock(TheRegistry().mutex);
  std::vector<std::shared_ptr<NcclWorld>> all;
  for (const auto& [id, world] : TheRegistry().worlds) all.push_back(world);
  return all;
}

// --- Joining and leaving ---------------------------------------------------------------------------------------------

void NcclWorld::Join(int rank, int device, int ranks) {
  const std::lock_guard lock(mutex_);
  if (ranks != this->ranks() || At(rank).joined) {
    const std::string text = "rank " + std::to_string(rank) + " joins twice, or the number of ranks differs";
    for (int other = 0; other < this->ranks(); ++other) FailLocked(other, ncclInvalidUsage, text);
    return;
  }
  At(rank).joined = true;
  At(rank).device = device;
  if (AllJoined()) CheckDevices();
  changed_.notify_all();
}

bool NcclWorld::AllJoined() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.joined; });
}

void NcclWorld::CheckDevices() {
  std::map<int, int> rank_on;  // device
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto [at, is_new] = rank_on.emplace(At(rank).device, rank);
    if (is_new) continue;
    const std::string text = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                             std::to_string(at->second) + " both on CUDA device " + std::to_string(at->first);
    for (int other = 0; other < ranks(); ++other) FailLocked(other, ncclInvalidUsage, text);
    return;
  }
}

ncclResult_t NcclWorld::State(int rank) {
  const std::lock_guard lock(mutex_);
  const Member& member = At(rank);
  if (member.error != ncclSuccess) return member.error;
  if (!AllJoined()) return ncclInProgress;
  if (!member.finalized) return ncclSuccess;
  const bool all = std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.finalized; });
  return all && member.issued == 0 ? ncclSuccess : ncclInProgress;
}

std::string NcclWorld::Error(int rank) {
  const std::lock_guard lock(mutex_);
  return At(rank).text;
}

void NcclWorld::WaitWhileInProgress(int rank) {
  while (State(rank) == ncclInProgress) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

void NcclWorld::Finalize(int rank) {
  const std::lock_guard lock(mutex_);
  At(rank).finalized = true;
  changed_.notify_all();
}

void NcclWorld::Drain(int rank) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return At(rank).issued == 0; });
}

void NcclWorld::Abort(int rank) {
  std::unique_lock lock(mutex_);
  At(rank).aborted = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return At(rank).running == 0; });
}

void NcclWorld::Leave(const ncclUniqueId& id, int rank) {
  const std::lock_guard registry_lock(TheRegistry().mutex);
  const std::lock_guard lock(mutex_);
  At(rank).left = true;
  const auto gone = [](const Member& member) { return !member.joined || member.left; };
  if (std::all_of(members_.begin(), members_.end(), gone)) TheRegistry().worlds.erase(KeyOf(id));
}

void NcclWorld::FailLocked(int rank, ncclResult_t error, const std::string& text) {
  Member& member = At(rank);
  if (member.error == ncclSuccess) {
    member.error = error;
    member.text = text;
  }
  changed_.notify_all();
}

void NcclWorld::Break(int device) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.joined && member.device == device;
  });
  if (found == members_.end()) return;
  found->broken = true;
  for (int rank = 0; rank < ranks(); ++rank) {
    const bool itself = &At(rank) == &*found;
    FailLocked(rank, itself ? ncclSystemError : ncclRemoteError,
               itself ? "broken by a test" : "remote process exited or there was a network error");
  }
}

// --- Work on a stream ------------------------------------------------------------------------------------------------

void NcclWorld::Issue(int rank) {
  const std::lock_guard lock(mutex_);
  ++At(rank).issued;
}

void NcclWorld::Run(int rank, const std::vector<NcclOperation>& group) {
  {
    const std::lock_guard lock(mutex_);
    ++At(rank).running;
  }
  Delay(rank);
  Exchange(rank, group);
  const std::lock_guard lock(mutex_);
  --At(rank).running;
  --At(rank).issued;
  changed_.notify_all();
}

/// Sends and the rank's parts of sums go out first, so that no order of calls within a group can hang.
void NcclWorld::Exchange(int rank, const std::vector<NcclOperation>& group) {
  using Kind = NcclOperation::Kind;
  for (const NcclOperation& operation : group) {
    if (operation.kind != Kind::kReceive && !Post(rank, operation)) return;
  }
  for (const NcclOperation& operation : group) {
    if (operation.kind == Kind::kReceive && !Receive(rank, operation)) return;
    if (operation.kind == Kind::kSum && !Sum(rank, operation)) return;
  }
  for (const NcclOperation& operation : group) {
    if (operation.kind == Kind::kSend && !AwaitTaken(rank, operation)) return;
  }
}

bool NcclWorld::WaitFor(std::unique_lock<std::mutex>& lock, int rank,
                        const std::function<bool()>& condition) {
  changed_.wait(lock, [&] { return Over(rank) || (!At(rank).broken && condition()); });
  return !Over(rank);
}

void NcclWorld::Delay(int rank) {
  std::chrono::milliseconds delay(0);
  {
    const std::lock_guard lock(TheRegistry().mutex);
    const auto found = TheRegistry().delays.find(At(rank).device);
    if (found == TheRegistry().delays.end()) return;
    delay = found->second;
    TheRegistry().delays.erase(found);
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, delay, [&] { return Over(rank); });
}

bool NcclWorld::Post(int rank, const NcclOperation& operation) {
  std::unique_lock lock(mutex_);
  if (!WaitFor(lock, rank, [] { return true; })) return false;
  lock.unlock();
  const auto* const from = static_cast<const char*>(operation.from);
  if (operation.count > 0) Read(from, operation.bytes());
  auto message = std::make_shared<Message>();
  message->bytes.assign(from, from + operation.bytes());
  message->type = operation.type;
  message->clock = Release();
  const bool is_sum = operation.kind == NcclOperation::Kind::kSum;
  if (is_sum) message->readers = ranks();
  lock.lock();
  messages_[{rank, is_sum ? -1 : operation.peer, operation.number}] = std::move(message);
  changed_.notify_all();
  return true;
}

std::shared_ptr<NcclWorld::Message> NcclWorld::Find(const Key& key) {
  const auto found = messages_.find(key);
  return found == messages_.end() ? nullptr : found->second;
}

void NcclWorld::Took(const Key& key) {
  const auto found = messages_.find(key);
  if (--found->second->readers == 0) messages_.erase(found);
  changed_.notify_all();
}

bool NcclWorld::Receive(int rank, const NcclOperation& operation) {
  const Key key = {operation.peer, rank, operation.number};
  std::unique_lock lock(mutex_);
  if (!WaitFor(lock, rank, [&] { return Find(key) != nullptr; })) return false;
  const std::shared_ptr<Message> message = Find(key);
  if (message->bytes.size() != operation.bytes()) {
    const std::string text = "a message of " + std::to_string(message->bytes.size()) + " bytes from rank " +
                             std::to_string(operation.peer) + ", of " + std::to_string(operation.bytes()) +
                             " expected by rank " + std::to_string(rank);
    for (const int end : {rank, operation.peer}) {
      FailLocked(end, ncclInvalidUsage, text);
      At(end).failed = true;
    }
    return false;
  }
  lock.unlock();
  Acquire(message->clock);
  Deliver(message->bytes, operation.to);
  lock.lock();
  Took(key);
  return true;
}

bool NcclWorld::Sum(int rank, const NcclOperation& operation) {
  std::vector<std::shared_ptr<Message>> parts;
  std::unique_lock lock(mutex_);
  for (int part = 0; part < ranks(); ++part) {
    const Key key = {part, -1, operation.number};
    if (!WaitFor(lock, rank, [&] { return Find(key) != nullptr; })) return false;
    parts.push_back(Find(key));
  }
  for (int part = 0; part < ranks(); ++part) {
    const Message& message = *parts[static_cast<size_t>(part)];
    if (message.bytes.size() == operation.bytes() && message.type == operation.type) continue;
    for (int end = 0; end < ranks(); ++end) {
      FailLocked(end, ncclInvalidUsage, "sums of different sizes or types");
      At(end).failed = true;
    }
    return false;
  }
  for (int part = 0; part < ranks(); ++part) Took({part, -1, operation.number});
  lock.unlock();
  std::vector<char> sum = parts[0]->bytes;
  for (size_t part = 1; part < parts.size(); ++part) AddTo(sum, parts[part]->bytes, operation.type);
  for (const auto& part : parts) Acquire(part->clock);
  Deliver(sum, operation.to);
  return true;
}

bool NcclWorld::AwaitTaken(int rank, const NcclOperation& operation) {
  const Key key = {rank, operation.peer, operation.number};
  std::unique_lock lock(mutex_);
  return WaitFor(lock, rank, [&] { return Find(key) == nullptr; });
}

}  // namespace metp::emulation
