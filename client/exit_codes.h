#pragma once

// What metpctl's exit codes mean: errors of the call and outcomes of a job never share one.

#include "absl/status/status.h"
#include "metp/v1/status.pb.h"

namespace metp {

enum ExitCode {
  kExitOk = 0,         // done; with watch: the job succeeded
  kExitJobFailed = 1,  // watched job failed
  kExitUsage = 2,  // wrong command line, or a job that breaks a rule (nothing was sent, or it was refused)
  kExitUnreachable = 3,    // no answer from the coordinator
  kExitJobCancelled = 4,   // watched job was cancelled
  kExitRefused = 5,        // the coordinator understood and refused; trace: the ranks did not do it in time
  kExitNotFound = 6,       // no such job, or no such file
  kExitOutput = 7,         // what was to be printed could not be written
  kExitInterrupted = 130,  // ^C while watching: the job runs on
};

inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 done, with watch: job succeeded; 1 watched job failed; 2 usage or bad job file; 3 "
    "coordinator "
    "unreachable; 4 watched job cancelled; 5 refused by the coordinator, or no whole trace in time; 6 no "
    "such job or file; 7 output not "
    "written; 130 "
    "interrupted while "
    "watching (the job runs on).";

/// For an error of a call.
inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitRefused;
  }
}

/// For a job that has ended.
inline int ExitCodeOf(v1::JobStatus::State state) {
  if (state == v1::JobStatus::FAILED) return kExitJobFailed;
  return state == v1::JobStatus::CANCELLED ? kExitJobCancelled : kExitOk;
}

}  // namespace metp
