#include "worker/backend/sim/profile.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.h"
#include "proto/support/job_schema.h"
#include "proto/support/status_macros.h"
#include "proto/support/yaml_message.h"
#include "worker/backend/sim/built_in_profiles.h"

namespace metp {

namespace {

constexpr char kKind[] = "a device profile";

/// What the schema's rules of single fields cannot say.
void CheckProfile(const v1::DeviceProfile& profile, Problems& problems) {
  if (UsableBytes(profile) <= profile.workspace_bytes()) {
    problems.Add({}, "reserved_bytes",
                 absl::StrCat("found ", profile.reserved_bytes(), " and a workspace_bytes of ",
                              profile.workspace_bytes(), ", expected less than memory_bytes, ",
                              profile.memory_bytes(), ", together"));
  }
}

constexpr int64_t kReservedBytes = 2'500'000'000;  // contexts, libraries, fragments

}  // namespace

std::vector<std::string> BuiltInProfiles() {
  std::vector<std::string> names;
  for (const BuiltInProfile& profile : kBuiltInProfiles) names.emplace_back(profile.name);
  return names;
}

int64_t ReservedBytesOf(int64_t memory_bytes) { return std::min(kReservedBytes, memory_bytes / 16); }

void NormalizeProfile(v1::DeviceProfile& profile) {
  if (!profile.has_one_memory()) profile.set_one_memory(false);
  if (!profile.has_reserved_bytes()) profile.set_reserved_bytes(kReservedBytes);
  if (!profile.has_workspace_bytes()) profile.set_workspace_bytes(int64_t{64} << 20);
  if (!profile.has_kernel_seconds()) profile.set_kernel_seconds(5e-6);
  if (!profile.has_peak_flops_per_second())
    profile.set_peak_flops_per_second(profile.gemm().flops_per_second());
  for (v1::KernelRate* rate :
       {profile.mutable_gemm(), profile.mutable_attention_forward(), profile.mutable_attention_backward()}) {
    if (!rate->has_bytes_per_second()) rate->set_bytes_per_second(profile.bytes_per_second());
  }
  if (!profile.has_node_link()) *profile.mutable_node_link() = profile.link();
  if (!profile.has_host_link()) profile.mutable_host_link()->set_bytes_per_second(profile.bytes_per_second());
  if (!profile.has_host_bytes_per_second())
    profile.set_host_bytes_per_second(profile.devices_per_node() * profile.host_link().bytes_per_second());
  for (v1::Link* link : {profile.mutable_link(), profile.mutable_node_link(), profile.mutable_host_link()}) {
    if (!link->has_latency_seconds()) link->set_latency_seconds(0);
  }
}

absl::StatusOr<v1::DeviceProfile> ParseProfile(const std::string& text, const std::string& name) {
  v1::DeviceProfile profile;
  Places places;
  METP_RETURN_IF_ERROR(ReadYamlMessage(text, name, kKind, {}, profile, places));
  NormalizeProfile(profile);
  Problems problems;
  CheckFields(profile, "", problems);
  CheckProfile(profile, problems);
  problems.Locate(places);
  METP_RETURN_IF_ERROR(problems.ToStatus(name));
  return profile;
}

namespace {

/// The set fields of one level, sections in braces.
std::string Yaml(const google::protobuf::Message& message, absl::string_view between) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  reflection.ListFields(message, &fields);
  std::vector<std::string> lines;
  for (const google::protobuf::FieldDescriptor* field : fields) {
    std::string value;
    switch (field->cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
        value = absl::StrCat("{", Yaml(reflection.GetMessage(message, field), ", "), "}");
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_ENUM:
        value = EnumWord(*reflection.GetEnum(message, field));
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        value = reflection.GetBool(message, field) ? "true" : "false";
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
        value = absl::StrFormat("%.17g", reflection.GetDouble(message, field));
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
        value = absl::StrCat(reflection.GetInt64(message, field));
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
        value = absl::StrCat(reflection.GetInt32(message, field));
        break;
      default:
        value =
            absl::StrCat("'", absl::StrReplaceAll(reflection.GetString(message, field), {{"'", "''"}}), "'");
    }
    lines.push_back(absl::StrCat(field->name(), ": ", value));
  }
  return absl::StrJoin(lines, between);
}

}  // namespace

std::string ProfileToYaml(const v1::DeviceProfile& profile) { return Yaml(profile, "\n") + "\n"; }

absl::StatusOr<v1::DeviceProfile> LoadProfile(const std::string& name_or_path) {
  for (const BuiltInProfile& profile : kBuiltInProfiles) {
    if (profile.name == name_or_path) return ParseProfile(profile.text, name_or_path);
  }
  std::error_code error;
  if (!std::filesystem::exists(name_or_path, error)) {
    return absl::NotFoundError(absl::StrCat(
        "profile '", name_or_path, "': found neither a file of that name nor a ",
        "built-in profile, expected ", absl::StrJoin(BuiltInProfiles(), ", "), " or a profile file"));
  }
  METP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(name_or_path, kKind));
  return ParseProfile(text, name_or_path);
}

}  // namespace metp
