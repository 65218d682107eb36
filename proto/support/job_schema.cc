// The schema in words, and single lookups in it.

#include "proto/support/job_schema.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace metp {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

/// The rule's spelled values, "auto=0 none=-1", in order.
std::vector<std::pair<std::string, int64_t>> Words(const v1::Rule& rule) {
  std::vector<std::pair<std::string, int64_t>> words;
  for (absl::string_view word : absl::StrSplit(rule.words(), ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, '=');
    int64_t value = 0;
    if (absl::SimpleAtoi(parts.second, &value)) {
      words.emplace_back(std::string(parts.first), value);
    }
  }
  return words;
}

/// "a, b or c".
std::string Alternatives(const std::vector<std::string>& choices) {
  if (choices.size() < 2) {
    return absl::StrJoin(choices, "");
  }
  return absl::StrCat(absl::StrJoin(choices.begin(), choices.end() - 1, ", "), " or ", choices.back());
}

/// Whole numbers without an exponent.
std::string BoundText(double bound) {
  const bool whole = bound == std::floor(bound) && std::abs(bound) < 1e15;
  return whole ? absl::StrCat(static_cast<int64_t>(bound)) : absl::StrCat(bound);
}

std::string Bounds(const v1::Rule& rule) {
  std::string bounds;
  if (rule.has_min()) {
    absl::StrAppend(&bounds, rule.exclusive_min() ? " larger than " : " of at least ", BoundText(rule.min()));
  }
  if (rule.has_max()) {
    absl::StrAppend(&bounds, bounds.empty() ? "" : " and", rule.exclusive_max() ? " less than " : " at most ",
                    BoundText(rule.max()));
  }
  return bounds;
}

/// One value of the field, or, in the plural, several.
std::string ValueExpectation(const FieldDescriptor& field, bool plural) {
  const v1::Rule& rule = RuleOf(field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      std::vector<std::string> choices;
      for (const auto& [word, value] : Words(rule)) {
        choices.push_back(word);
      }
      choices.push_back(absl::StrCat(plural ? "integers" : "an integer", Bounds(rule)));
      return Alternatives(choices);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(plural ? "numbers" : "a number", Bounds(rule));
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> choices;
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        if (std::string word = EnumWord(*field.enum_type()->value(i)); !word.empty()) {
          choices.push_back(std::move(word));
        }
      }
      return Alternatives(choices);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SectionExpectation(*field.message_type());
    default:
      return plural ? "texts" : "a text";
  }
}

}  // namespace

const v1::Rule& RuleOf(const FieldDescriptor& field) { return field.options().GetExtension(v1::rule); }

std::string KeyPath(const std::string& section, const std::string& name) {
  return section.empty() ? name : absl::StrCat(section, ".", name);
}

std::string ElementExpectation(const FieldDescriptor& field) { return ValueExpectation(field, false); }

std::string Expectation(const FieldDescriptor& field) {
  if (!field.is_repeated()) {
    return ElementExpectation(field);
  }
  const uint32_t count = RuleOf(field).count();
  return absl::StrCat(field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "a text or " : "", "a list of ",
                      count == 0 ? "" : absl::StrCat(count, " "), ValueExpectation(field, true));
}

std::string SectionExpectation(const Descriptor& section) {
  std::vector<std::string> required, all;
  for (int i = 0; i < section.field_count(); ++i) {
    all.push_back(section.field(i)->name());
    if (RuleOf(*section.field(i)).required()) {
      required.push_back(section.field(i)->name());
    }
  }
  return absl::StrCat("a section (", absl::StrJoin(required.empty() ? all : required, ", "), ")");
}

std::string Missing(const FieldDescriptor& field) {
  return absl::StrCat("missing, expected ", Expectation(field), ": ", RuleOf(field).help());
}

std::string EnumWord(const EnumValueDescriptor& value) {
  constexpr absl::string_view kUnspecified = "UNSPECIFIED";
  const std::string& zero =
      value.type()->value(0)->name();  // FAMILY_UNSPECIFIED: what stands before is the prefix
  if (value.number() == 0 || zero.size() < kUnspecified.size()) {
    return "";
  }
  return absl::AsciiStrToLower(value.name().substr(zero.size() - kUnspecified.size()));
}

const EnumValueDescriptor* FindEnumWord(const EnumDescriptor& type, absl::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (!word.empty() && EnumWord(*type.value(i)) == word) {
      return type.value(i);
    }
  }
  return nullptr;
}

std::optional<int64_t> WordValue(const FieldDescriptor& field, absl::string_view word) {
  for (const auto& [spelled, value] : Words(RuleOf(field))) {
    if (spelled == word) {
      return value;
    }
  }
  return std::nullopt;
}

bool WithinBounds(const FieldDescriptor& field, double value) {
  const v1::Rule& rule = RuleOf(field);
  return std::isfinite(value) &&
         (!rule.has_min() || (rule.exclusive_min() ? value > rule.min() : value >= rule.min())) &&
         (!rule.has_max() || (rule.exclusive_max() ? value < rule.max() : value <= rule.max()));
}

}  // namespace metp
