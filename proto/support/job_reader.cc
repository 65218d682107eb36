// The walk over tree and descriptors. Numbers are parsed here, not by yaml-cpp, whose conversions are
// lenient.

#include "proto/support/job_reader.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/job_scalar.h"
#include "proto/support/job_schema.h"

namespace metp {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// Letters to insert, remove, replace or swap with the next to get from `a` to `b` (optimal string
/// alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1);  // rows of the table: distances of a's prefixes to b's
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

/// What to say about a key that `section` does not have: the nearest name, the section that has it, or all
/// names.
std::string UnknownKey(const Descriptor& whole, const Descriptor& section, const std::string& key) {
  std::string nearest;
  size_t distance = std::max<size_t>(1, key.size() / 3) + 1;
  std::vector<std::string> names;
  for (int i = 0; i < section.field_count(); ++i) {
    const std::string& name = section.field(i)->name();
    names.push_back(name);
    if (key.size() <= 2 * name.size()) {
      if (const size_t d = EditDistance(key, name); d < distance) {
        distance = d;
        nearest = name;
      }
    }
  }
  if (!nearest.empty()) {
    return absl::StrCat("unknown key, did you mean '", nearest, "'?");
  }
  for (int i = 0; i < whole.field_count(); ++i) {
    const Descriptor* other = whole.field(i)->message_type();
    if (other != nullptr && other != &section && other->FindFieldByName(key) != nullptr) {
      return absl::StrCat("unknown key, did you mean '", whole.field(i)->name(), ".", key, "'?");
    }
  }
  return absl::StrCat("unknown key, expected one of ", absl::StrJoin(names, ", "));
}

class Reader {
 public:
  Reader(const Descriptor& whole, Places& places, Problems& problems)
      : whole_(whole), places_(places), problems_(problems) {}

  void ReadSection(const YamlNode& node, const Place& place, const std::string& section, Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    if (node.kind != YamlNode::Kind::kMap) {
      problems_.Add(place, section,
                    absl::StrCat("found ", Found(node), ", expected ", SectionExpectation(type)));
      return;
    }
    std::map<std::string, Place> seen;
    for (const YamlEntry& entry : node.entries) {
      const std::string key = KeyPath(section, Shown(entry.key));
      const FieldDescriptor* field = type.FindFieldByName(entry.key);
      if (field == nullptr) {
        problems_.Add(entry.place, key, UnknownKey(whole_, type, entry.key));
      } else if (const auto [first, inserted] = seen.emplace(entry.key, entry.place); !inserted) {
        problems_.Add(entry.place, key,
                      absl::StrCat("given twice, expected once", FirstGiven(first->second)));
      } else {
        places_[key] = entry.place;
        ReadField(*field, entry, key, message);
      }
    }
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (RuleOf(field).required() && !seen.contains(field.name())) {
        problems_.Add(place, KeyPath(section, field.name()), Missing(field));
      }
    }
  }

 private:
  static std::string FirstGiven(const Place& place) {
    return place.override_text.empty() ? absl::StrCat(" (first on line ", place.line, ")") : "";
  }

  void ReadField(const FieldDescriptor& field, const YamlEntry& entry, const std::string& key,
                 Message& message) {
    const Reflection& reflection = *message.GetReflection();
    const YamlNode& node = entry.value;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ReadSection(node, entry.place, key, *reflection.MutableMessage(&message, &field));
    } else if (!field.is_repeated()) {
      ReadScalar(field, node, entry.place, key, message);
    } else if (node.kind == YamlNode::Kind::kList) {
      ReadList(field, entry, key, message);
    } else if (node.kind == YamlNode::Kind::kScalar && (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                                                        field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM)) {
      ReadScalar(field, node, entry.place, key, message);
    } else {
      Refuse(node, entry.place, key, Expectation(field));
    }
  }

  void ReadList(const FieldDescriptor& field, const YamlEntry& entry, const std::string& key,
                Message& message) {
    const std::vector<YamlNode>& items = entry.value.items;
    const size_t count = RuleOf(field).count();
    if (items.empty()) {
      Refuse(entry.value, entry.place, key, Expectation(field));
    } else if (count != 0 && items.size() != count) {
      problems_.Add(entry.place, key,
                    absl::StrCat("found a list of ", items.size(), ", expected ", Expectation(field)));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      ReadScalar(field, items[i], items[i].place, absl::StrCat(key, "[", i, "]"), message);
      places_[absl::StrCat(key, "[", i, "]")] = items[i].place;
    }
  }

  void Refuse(const YamlNode& node, const Place& place, const std::string& key, const std::string& expected) {
    problems_.Add(place, key, absl::StrCat("found ", Found(node), ", expected ", expected));
  }

  /// Sets the field, or adds to it where it is a list.
  void ReadScalar(const FieldDescriptor& field, const YamlNode& node, const Place& place,
                  const std::string& key, Message& message) {
    if (node.kind != YamlNode::Kind::kScalar || !SetScalar(field, node, message)) {
      Refuse(node, place, key, absl::StrCat(ElementExpectation(field), TypeLimit(field, node)));
    }
  }

  const Descriptor& whole_;
  Places& places_;
  Problems& problems_;
};

}  // namespace

void ReadMessage(const YamlNode& root, Message& message, Places& places, Problems& problems) {
  Reader(*message.GetDescriptor(), places, problems).ReadSection(root, places[""] = root.place, "", message);
}

}  // namespace metp
