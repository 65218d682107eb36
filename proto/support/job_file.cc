// A job's text to a complete and checked job.

#include "proto/support/job_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/job_problems.h"
#include "proto/support/job_rules.h"
#include "proto/support/status_macros.h"
#include "proto/support/yaml_message.h"

namespace metp {

namespace {
constexpr char kJobFile[] = "a job file";
}

absl::StatusOr<v1::JobSpec> ParseJob(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& overrides) {
  Places places;
  v1::JobSpec job;
  METP_RETURN_IF_ERROR(ReadYamlMessage(text, name, kJobFile, overrides, job, places));
  NormalizeJob(job);
  Problems problems = CheckJob(job);
  problems.Locate(places);
  METP_RETURN_IF_ERROR(problems.ToStatus(name));
  return job;
}

absl::Status ProblemInJobFile(const std::string& path, const std::vector<std::string>& overrides,
                              const std::string& key, const std::string& message) {
  METP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kJobFile));
  Places places;
  v1::JobSpec job;
  METP_RETURN_IF_ERROR(ReadYamlMessage(text, path, kJobFile, overrides, job, places));
  Problems problems;
  problems.Add(FindPlace(places, key), key, message);
  return problems.ToStatus(path);
}

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path, const std::vector<std::string>& overrides) {
  METP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kJobFile));
  METP_ASSIGN_OR_RETURN(v1::JobSpec job, ParseJob(text, path, overrides));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (error) {
    return absl::NotFoundError(absl::StrCat(path, ": its folder cannot be found: ", error.message()));
  }
  for (std::string& source : *job.mutable_data()->mutable_source()) {
    source = (folder / source).lexically_normal().string();
  }
  if (job.has_checkpoint()) {
    v1::CheckpointSpec& checkpoint = *job.mutable_checkpoint();
    checkpoint.set_directory((folder / checkpoint.directory()).lexically_normal().string());
    if (checkpoint.resume() != "auto" && checkpoint.resume() != "none")
      checkpoint.set_resume((folder / checkpoint.resume()).lexically_normal().string());
  }
  return job;
}

}  // namespace metp
