#pragma once

// gRPC adapter for worker daemons: one session per open call. A session reads one message, hands it to the
// event loop, and reads the next when that one has been taken; so an overloaded coordinator slows its workers
// instead of growing.

#include "metp/v1/worker_service.grpc.pb.h"
#include "server/event_loop.h"

namespace metp {

class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerService(EventLoop& loop) : loop_(loop) {}

  grpc::ServerBidiReactor<v1::FromWorker, v1::ToWorker>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  EventLoop& loop_;
};

}  // namespace metp
