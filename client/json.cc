#include "client/json.h"

#include "google/protobuf/util/json_util.h"

namespace metp {

std::string ToJson(const google::protobuf::Message& message, bool pretty) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = pretty;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for unknown Any types only; these messages have none.
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return "{}";
  if (!json.empty() && json.back() == '\n') json.pop_back();
  return json;
}

}  // namespace metp
