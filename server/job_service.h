#pragma once

// gRPC adapter for clients: validates, calls one method, converts. Changes go through the event loop, reads
// straight to the tables.

#include <string>

#include "metp/v1/job_service.grpc.pb.h"
#include "server/change_hub.h"
#include "server/config.h"
#include "server/event_loop.h"
#include "server/job_table.h"
#include "server/planning_desk.h"
#include "server/registry.h"

namespace metp {

class JobService final : public v1::JobService::CallbackService {
 public:
  JobService(const CoordinatorConfig& config, EventLoop& loop, PlanningDesk& desk, const JobTable& jobs,
             const Registry& workers, ChangeHub& changes)
      : config_(config), loop_(loop), desk_(desk), jobs_(jobs), workers_(workers), changes_(changes) {}

  /// Known only once the HTTP server has its port.
  void set_http_url(std::string url) { http_url_ = std::move(url); }

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request, v1::JobStatus* response) override;
  grpc::ServerWriteReactor<v1::WatchJobUpdate>* WatchJob(grpc::CallbackServerContext* context,
                                                         const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::LogChunk>* WatchLogs(grpc::CallbackServerContext* context,
                                                    const v1::WatchLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerWriteReactor<v1::TraceChunk>* TraceJob(grpc::CallbackServerContext* context,
                                                     const v1::TraceJobRequest* request) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::WorkerStatus* response) override;
  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest* request,
                                      v1::GetServerResponse* response) override;

 private:
  const CoordinatorConfig& config_;
  EventLoop& loop_;
  PlanningDesk& desk_;
  const JobTable& jobs_;
  const Registry& workers_;
  ChangeHub& changes_;
  std::string http_url_;
};

}  // namespace metp
