#pragma once

// A client of the coordinator, as the benchmark needs one: its jobs do not end.

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "metp/v1/job_service.grpc.pb.h"
#include "proto/support/grpc_status.h"
#include "proto/support/ids.h"
#include "proto/support/status_macros.h"
#include "tests/support/jobs.h"

namespace metp::bench {

/// Any thread.
class Client {
 public:
  explicit Client(const std::string& coordinator) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kRedialMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kRedialMs);
    stub_ = v1::JobService::NewStub(
        grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments));
  }

  /// `patient`: waits for a coordinator that is away.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&, Response*),
                                const Request& request, bool patient = false) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    context.set_wait_for_ready(patient);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }
  /// Returns the job's id.
  absl::StatusOr<std::string> Submit(const std::string& name, int degree) {
    v1::SubmitRequest request;
    request.set_request_id(RandomHex(32));
    *request.mutable_job() = SmallJob(name, degree, kSteps);
    METP_ASSIGN_OR_RETURN(const v1::SubmitResponse response, Call(&v1::JobService::Stub::Submit, request));
    return response.status().id();
  }

 private:
  static constexpr int kRedialMs = 20;       // a restart is measured with it
  static constexpr int kSteps = 1000000000;  // jobs do not end
  static constexpr std::chrono::seconds kCallTimeout{60};

  std::unique_ptr<v1::JobService::Stub> stub_;
};

}  // namespace metp::bench
