#include "client/job_file_error.h"

#include <cstdio>

#include "client/exit_codes.h"
#include "proto/support/job_file.h"

namespace metp {

int FailInJobFile(const std::string& path, const std::vector<std::string>& overrides,
                  const absl::Status& error) {
  const std::string message(error.message());
  const size_t colon = message.find(": ");
  const std::string key = message.substr(0, colon);
  const bool has_key = colon != std::string::npos && key.find('.') != std::string::npos &&
                       key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.") == std::string::npos;
  const std::string shown =
      has_key ? std::string(ProblemInJobFile(path, overrides, key, message.substr(colon + 2)).message())
              : message;
  std::fprintf(stderr, "%s\n", shown.c_str());
  return ExitCodeOf(error);
}

}  // namespace metp
