// Numbers are parsed here, not by yaml-cpp, whose conversions are lenient.

#include "proto/support/job_scalar.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/support/job_schema.h"

namespace metp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

/// Decimal, without leading zeros: 010 is 8 to some readers of YAML and 10 to others.
bool IsInteger(absl::string_view text) {
  if (!text.empty() && text[0] == '-') {
    text.remove_prefix(1);
  }
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         (text.size() == 1 || text[0] != '0');
}

/// Decimal, with or without fraction and exponent. Nothing where it is not, or, with `too_large` set, where
/// it does not fit a double (nor do magnitudes too small to be told from zero).
std::optional<double> ParseNumber(absl::string_view text, bool& too_large) {
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != absl::string_view::npos) {
    return std::nullopt;  // no nan, inf or hexadecimal
  }
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    text.remove_prefix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  too_large = error == std::errc::result_out_of_range;
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

bool FitsInt32(int64_t value) {
  return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
}

bool SetInteger(const FieldDescriptor& field, const YamlNode& node, Message& message) {
  int64_t value = 0;
  if (const std::optional<int64_t> word = WordValue(field, node.text)) {
    value = *word;
  } else if (node.quoted || !IsInteger(node.text) || !absl::SimpleAtoi(node.text, &value) ||
             !WithinBounds(field, static_cast<double>(value))) {
    return false;
  }
  const Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    list ? reflection.AddInt64(&message, &field, value) : reflection.SetInt64(&message, &field, value);
    return true;
  }
  if (!FitsInt32(value)) {
    return false;
  }
  const int32_t narrow = static_cast<int32_t>(value);
  list ? reflection.AddInt32(&message, &field, narrow) : reflection.SetInt32(&message, &field, narrow);
  return true;
}

}  // namespace

bool SetScalar(const FieldDescriptor& field, const YamlNode& node, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return SetInteger(field, node, message);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      bool too_large = false;
      const std::optional<double> value = node.quoted ? std::nullopt : ParseNumber(node.text, too_large);
      if (!value || !WithinBounds(field, *value)) {
        return false;
      }
      list ? reflection.AddDouble(&message, &field, *value) : reflection.SetDouble(&message, &field, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = node.text == "true";
      if (node.quoted || (!value && node.text != "false")) {
        return false;
      }
      list ? reflection.AddBool(&message, &field, value) : reflection.SetBool(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const google::protobuf::EnumValueDescriptor* value = FindEnumWord(*field.enum_type(), node.text);
      if (value == nullptr) {
        return false;
      }
      list ? reflection.AddEnum(&message, &field, value) : reflection.SetEnum(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      list ? reflection.AddString(&message, &field, node.text)
           : reflection.SetString(&message, &field, node.text);
      return true;
    default:
      return false;
  }
}

std::string TypeLimit(const FieldDescriptor& field, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) {
    return "";
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    bool too_large = false;
    ParseNumber(node.text, too_large);
    return too_large ? " that fits double precision" : "";
  }
  const bool narrow = field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
  if ((!narrow && field.cpp_type() != FieldDescriptor::CPPTYPE_INT64) || !IsInteger(node.text)) {
    return "";
  }
  int64_t value = 0;
  const bool fits = absl::SimpleAtoi(node.text, &value) && (!narrow || FitsInt32(value));
  return fits ? "" : absl::StrCat(" that fits ", narrow ? 32 : 64, " bits");
}

}  // namespace metp
