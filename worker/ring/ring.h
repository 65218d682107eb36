#pragma once

// The ring pass: the one mechanism that moves everything.
//
// A pass is p steps. In each, one hop of whatever is aboard (a group of sends to rank r + 1 and receives from
// r - 1) runs on the communication stream while the compute stream runs the step's unit:
//
//     comm      wait for compute t-1 | hop t: send, receive |
//     compute                        | unit(t)              | wait for hop t | arrivals
//
// These two waits, one each way, are all the ordering there is, and both are needed:
//   hop t waits for compute t-1   it sends what compute t-1 wrote and overwrites what compute t-1 read
//   compute t+1 waits for hop t   it reads what hop t received and overwrites what hop t sent
// Step 0 works on what is at home already, so no pass starts with a bubble.
//
// What travels is a Traveller: the shards of a pass (slots.h), gradient accumulators (accumulators.h), the
// next head group's weights and the previous group's gradients (gather.h). Travellers board and then make one
// hop with every step, whichever pass the step belongs to, until they are done; so the home hop of one pass,
// or the weights for the next, hide behind the compute of another. All ranks board the same travellers in the
// same order: that fixes the order of all messages.
//
// Used by one rank's compute thread.

#include <functional>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"
#include "worker/ring/passes.h"
#include "worker/telemetry/timeline.h"
#include "worker/telemetry/whereabouts.h"

namespace metp {

class Traveller {
 public:
  virtual ~Traveller() = default;
  /// Enters this traveller's next hop into the group. Called when not done().
  virtual void Depart(Exchange& hop) = 0;
  /// That hop is done, as the compute stream sees it: compute may be issued on what came.
  virtual void Arrive() = 0;
  virtual bool done() const = 0;
};

class Ring {
 public:
  /// Both must outlive the ring.
  Ring(Backend& backend, Communicator& communicator) : backend_(backend), communicator_(communicator) {}

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  Backend& backend() { return backend_; }
  Communicator& communicator() { return communicator_; }

  /// From the next step on, until it is done, `traveller` makes one hop a step. It is kept alive so long.
  void Board(std::shared_ptr<Traveller> traveller);

  /// One step of `pass`: hop and `unit` at the same time. Throws StepError when the ring is broken.
  void Step(Pass pass, const std::function<void()>& unit);
  /// Compute of `pass` outside any step; no hop.
  void Compute(Pass pass, const std::function<void()>& work);
  /// Steps without compute until `traveller` is done: its hops are exposed.
  void Finish(Pass pass, const Traveller& traveller);
  /// Steps without compute until nobody is aboard.
  void Drain(Pass pass);

  /// From now on, what TakeTimes adds up is also entered here, span by span; null: nowhere. Must outlive the ring.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }
  /// The same for where the ring stands at any moment.
  void set_whereabouts(Whereabouts* where) { where_ = where; }

  /// What each pass cost since the last call. Waits for the compute stream.
  PassTable TakeTimes();
  /// Payload bytes that hops have sent since the ring was made (all-reduces aside); up to date after
  /// TakeTimes.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  /// A hop into the timeline.
  void Enter(std::string_view pass, const HopRecord& record);

  Backend& backend_;
  Communicator& communicator_;
  std::vector<std::shared_ptr<Traveller>> aboard_;
  struct Span {
    Pass pass;
    Event start, end;
  };
  std::vector<Span> spans_;                   // compute, since the last TakeTimes
  std::vector<std::pair<HopId, Pass>> hops_;  // posted since the last TakeTimes
  int64_t sent_bytes_ = 0;
  Timeline* timeline_ = nullptr;
  Whereabouts* where_ = nullptr;
};

/// Enter a transfer into a group; empty ones are left out (on both sides, since both know the size).
inline void Send(Exchange& hop, const Matrix& x) {
  if (!x.empty()) hop.sends.push_back(x);
}
inline void Receive(Exchange& hop, const Matrix& x) {
  if (!x.empty()) hop.receives.push_back(x);
}

}  // namespace metp
