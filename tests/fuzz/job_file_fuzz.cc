// Any text as a job file: no crash, no error of a sanitizer, and what is accepted is a valid, complete job.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "proto/support/job_file.h"
#include "proto/support/job_json.h"

/// The first line, where it starts with '=', is an override ("=train.steps=3"); the rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  if (text.starts_with('=')) {
    const size_t end = text.find('\n');
    overrides.push_back(text.substr(1, end == std::string::npos ? end : end - 1));
    text = end == std::string::npos ? "" : text.substr(end + 1);
  }
  const absl::StatusOr<metp::v1::JobSpec> job = metp::ParseJob(text, "fuzz.yaml", overrides);
  if (!job.ok()) {
    return job.status().message().empty() ? (std::abort(), 0) : 0;
  }
  metp::v1::JobSpec again = *job;
  metp::NormalizeJob(again);
  if (!metp::ValidateJob(*job).ok() || again.SerializeAsString() != job->SerializeAsString() ||
      metp::JobToJson(*job) == "{}") {
    std::abort();
  }
  return 0;
}
