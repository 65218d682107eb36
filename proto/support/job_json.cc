// A job as JSON.

#include "proto/support/job_json.h"

#include <google/protobuf/util/json_util.h>

namespace metp {

std::string JobToJson(const v1::JobSpec& job) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for unknown types inside Any and for texts that are not UTF-8, which no job holds.
  if (!google::protobuf::util::MessageToJsonString(job, &json, options).ok()) {
    return "{}";
  }
  return json;
}

}  // namespace metp
