#pragma once

// A YAML document as a tree that keeps what a strict reader needs and a plain loader drops: lines, whether a
// scalar was quoted, keys given twice. Knows nothing of jobs. Anchors, aliases, tags and further documents
// are refused: a job file is short, and each key should be found where it counts. Owned by one reading; no
// threads.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/support/job_problems.h"

namespace metp {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;
  std::string text;             // kScalar
  bool quoted = false;          // kScalar: "5" and '5' are text, 5 is a number; block scalars count as quoted
  std::vector<YamlNode> items;  // kList
  std::vector<YamlEntry> entries;  // kMap, in the order of the file, duplicates included
};

struct YamlEntry {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

/// What stands there, for messages: "-1", "the text \"5\"", "nothing", "a list", "a section".
std::string Found(const YamlNode& node);

/// The one document in `text`. Every node is placed at its line, or, where `override_text` is not empty, at
/// that override. Whatever cannot be read is added to `problems`; the tree is then incomplete. An empty text
/// gives kNull.
YamlNode ReadYaml(const std::string& text, const std::string& override_text, Problems& problems);

}  // namespace metp
