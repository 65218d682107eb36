// Text to tree, overrides into the tree, tree to message.

#include "proto/support/yaml_message.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/job_reader.h"
#include "proto/support/job_schema.h"
#include "proto/support/status_macros.h"
#include "proto/support/yaml_tree.h"

namespace metp {
namespace {

constexpr size_t kLargestFile = size_t{1} << 20;  // such a file is a page of text

/// The entry for `key` in the section `node`, made where there is none.
YamlEntry& FindOrAdd(YamlNode& node, const std::string& key, const Place& place) {
  for (YamlEntry& entry : node.entries) {
    if (entry.key == key) {
      return entry;
    }
  }
  node.entries.push_back({key, place, {}});
  return node.entries.back();
}

/// Puts "train.steps=10" into the tree, in the place of what the file gives for that key. A second entry for
/// the same key in the file stays, and stays an error.
void ApplyOverride(const std::string& text, YamlNode& root, Problems& problems) {
  const Place place{0, text.empty() ? "''" : text};
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.Add(place, "", "expected KEY=VALUE, such as train.steps=10");
    return;
  }
  const size_t problems_before = problems.size();
  YamlNode value = ReadYaml(text.substr(equals + 1), text, problems);
  if (problems.size() != problems_before) {
    return;
  }
  std::string path;
  YamlNode* section = &root;
  YamlEntry* entry = nullptr;
  for (const std::string& key : std::vector<std::string>(absl::StrSplit(text.substr(0, equals), '.'))) {
    if (section->kind == YamlNode::Kind::kNull) {
      section->kind = YamlNode::Kind::kMap;
    } else if (section->kind != YamlNode::Kind::kMap) {
      problems.Add(place, path, absl::StrCat("found ", Found(*section), ", expected a section"));
      return;
    }
    entry = &FindOrAdd(*section, key, place);
    section = &entry->value;
    path = KeyPath(path, key);
  }
  entry->place = place;
  entry->value = std::move(value);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, const std::string& expected) {
  const auto unreadable = [&](const std::string& why) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", why, ", expected ", expected));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return unreadable(std::strerror(errno));
  }
  std::string text(kLargestFile + 1, '\0');
  size_t size = 0;
  ssize_t count = 0;
  do {
    count = read(file, text.data() + size, text.size() - size);
    size += count > 0 ? static_cast<size_t>(count) : 0;
  } while ((count > 0 && size < text.size()) || (count < 0 && errno == EINTR));
  const int error = count < 0 ? errno : 0;
  close(file);
  if (error != 0) {
    return unreadable(std::strerror(error));
  }
  text.resize(size);
  return text;
}

absl::Status ReadYamlMessage(const std::string& text, const std::string& name, const std::string& expected,
                             const std::vector<std::string>& overrides, google::protobuf::Message& message,
                             Places& places) {
  if (text.size() > kLargestFile) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": found a file of more than ", kLargestFile, " bytes, expected ", expected));
  }
  Problems problems;
  YamlNode root = ReadYaml(text, "", problems);
  METP_RETURN_IF_ERROR(problems.ToStatus(name));
  root.place.line = std::max(root.place.line, 1);  // an empty text has no first node
  for (const std::string& override_text : overrides) {
    ApplyOverride(override_text, root, problems);
  }
  ReadMessage(root, message, places, problems);
  return problems.ToStatus(name);
}

}  // namespace metp
