#pragma once

// What a device's communicator needs from the wire: hops enqueued on the communication stream, in the order given.
// DeviceCommunicator owns one DeviceTransport; Enqueue and AllReduce are its compute thread's, Poll its watchdog's, Abort
// anybody's. It never calls one with a lock held, so that a transport may call its HopListener under locks of its own.

#include <memory>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/device/communication_stream.h"

namespace metp::cuda {

/// One hop as the wire sees it. Every transfer is contiguous and not empty.
struct DeviceHop {
  HopId id = 0;
  Exchange exchange;
  Event after;
};

/// Told about each hop, in order, from any thread.
class HopListener {
 public:
  virtual ~HopListener() = default;
  /// `ready`: the communication stream has come to the hop.
  virtual void Started(HopId hop, Event ready) = 0;
  /// All of the hop is enqueued; it is over when `done` has passed.
  virtual void Enqueued(HopId hop, Event done) = 0;
};

class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  /// Before the first hop. The listener must outlive the transport.
  virtual void Listen(HopListener* listener) = 0;
  /// Nobody else takes part: this rank receives what it sends.
  virtual bool alone() const = 0;

  /// Enqueues a hop behind the hops before it and behind hop.after; tells the listener now, or later where the
  /// neighbours must have come first. Does not wait for them. May throw StepError.
  virtual absl::Status Enqueue(DeviceHop hop) = 0;
  /// Enqueues the sum of `values` (device memory, fp32 or fp64, contiguous, not empty) behind all that the communication
  /// stream has been given. May wait for the other ranks, up to the deadline. May throw StepError.
  virtual absl::Status AllReduce(const Matrix& values) = 0;

  /// A failure that shows by itself: a neighbour is gone (Unavailable, named), sizes that disagree (InvalidArgument).
  virtual absl::Status Poll() = 0;
  /// Ends what is enqueued soon, with whatever result, and lets the neighbours notice. Nothing is moved once it has
  /// returned and the communication stream is empty. The first reason stays and is the result of calls from then on.
  virtual void Abort(const absl::Status& reason) = 0;
};

/// A transport that can enqueue any hop at once.
class DirectTransport : public DeviceTransport {
 public:
  void Listen(HopListener* listener) override { listener_ = listener; }
  absl::Status Enqueue(DeviceHop hop) override;

 protected:
  explicit DirectTransport(std::shared_ptr<CommunicationStream> stream) : stream_(std::move(stream)) {}
  CommunicationStream& stream() { return *stream_; }
  /// Enqueues the transfers, there is at least one, as one group.
  virtual absl::Status Transfer(const DeviceHop& hop) = 0;

 private:
  const std::shared_ptr<CommunicationStream> stream_;
  HopListener* listener_ = nullptr;
};

}  // namespace metp::cuda
