#pragma once

// The coordinator's calls as plain functions; the only file of metpctl that knows gRPC. One thread at a time,
// except Interrupt.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/job_service.pb.h"

namespace metp {

class Api {
 public:
  /// `coordinator`: HOST:PORT. Dials at the first call.
  /// `patience`: how long a watch that has begun waits for a coordinator that has gone.
  explicit Api(const std::string& coordinator, std::chrono::seconds patience = std::chrono::seconds(0));
  ~Api();

  // Every call: Unavailable "no coordinator answers at HOST:PORT ..." when there is none; otherwise what the
  // service says (metp/v1/job_service.proto).

  /// Tries again with the same request id while the coordinator is unreachable, for a few seconds: one job
  /// comes of it.
  absl::StatusOr<v1::JobStatus> Submit(const v1::JobSpec& job);
  absl::StatusOr<v1::JobStatus> GetJob(const std::string& job);
  absl::StatusOr<std::vector<v1::JobStatus>> ListJobs();
  absl::StatusOr<v1::JobStatus> CancelJob(const std::string& job);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const std::string& job);
  absl::StatusOr<std::vector<v1::WorkerStatus>> ListWorkers();
  absl::StatusOr<v1::WorkerStatus> DrainWorker(const v1::DrainWorkerRequest& request);
  /// Its http_url is one that can be opened from here.
  absl::StatusOr<v1::GetServerResponse> GetServer();

  // Watches go on where they were when the coordinator has been away: nothing is lost and nothing comes twice. Cancelled
  // after Interrupt.

  /// Calls `on_update` for each update until the job has ended.
  absl::Status WatchJob(const std::string& job,
                        const std::function<void(const v1::WatchJobUpdate&)>& on_update);
  absl::Status WatchLogs(const std::string& job, std::optional<int> rank, bool follow,
                         const std::function<void(const v1::LogChunk&)>& on_chunk);
  /// The timelines of the job's next steps, once; this call is not taken up again when the coordinator has been away.
  /// DeadlineExceeded: they have not come in time.
  absl::Status TraceJob(const std::string& job, int steps, std::chrono::seconds timeout,
                        const std::function<void(const v1::TraceChunk&)>& on_chunk);
  /// Ends a Watch or Trace call in progress, and makes later ones end at once. Any thread.
  void Interrupt();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metp
