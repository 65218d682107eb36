// Checks of a message's values against the rules of their fields, by reflection: for jobs that did not come
// from a file.

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/job_schema.h"

namespace metp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsWord(const FieldDescriptor& field, int64_t value) {
  const std::string& words = RuleOf(field).words();
  return absl::StrCat(words, " ").find(absl::StrCat("=", value, " ")) != std::string::npos;
}

/// Element `index` of a list; with -1, the field itself. What is wrong with it, or nothing.
std::string WrongValue(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  std::string found;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      const bool wide = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
      const int64_t value =
          index < 0 ? (wide ? reflection.GetInt64(message, &field) : reflection.GetInt32(message, &field))
          : wide    ? reflection.GetRepeatedInt64(message, &field, index)
                    : reflection.GetRepeatedInt32(message, &field, index);
      if (WithinBounds(field, static_cast<double>(value)) || IsWord(field, value)) {
        return "";
      }
      found = absl::StrCat(value);
      break;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = index < 0 ? reflection.GetDouble(message, &field)
                                     : reflection.GetRepeatedDouble(message, &field, index);
      if (WithinBounds(field, value)) {
        return "";
      }
      found = absl::StrCat(value);
      break;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = index < 0 ? reflection.GetEnumValue(message, &field)
                                  : reflection.GetRepeatedEnumValue(message, &field, index);
      if (value != 0 && field.enum_type()->FindValueByNumber(value) != nullptr) {
        return "";
      }
      found = value == 0 ? "nothing" : absl::StrCat("the unknown value ", value);
      break;
    }
    default:
      return "";  // any text, either truth value
  }
  return absl::StrCat("found ", found, ", expected ", ElementExpectation(field));
}

void CheckField(const Message& message, const FieldDescriptor& field, const std::string& key,
                Problems& problems) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    const int size = reflection.FieldSize(message, &field);
    const int count = static_cast<int>(RuleOf(field).count());
    if (size == 0 && RuleOf(field).required()) {
      problems.Add({}, key, Missing(field));
    } else if (size != 0 && count != 0 && size != count) {
      problems.Add({}, key, absl::StrCat("found a list of ", size, ", expected ", Expectation(field)));
    }
    for (int i = 0; i < size; ++i) {
      if (const std::string wrong = WrongValue(message, field, i); !wrong.empty()) {
        problems.Add({}, absl::StrCat(key, "[", i, "]"), wrong);
      }
    }
    return;
  }
  if (field.has_presence() && !reflection.HasField(message, &field)) {
    if (RuleOf(field).required()) {
      problems.Add({}, key, Missing(field));
    }
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    CheckFields(reflection.GetMessage(message, &field), key, problems);
  } else if (const std::string wrong = WrongValue(message, field, -1); !wrong.empty()) {
    problems.Add({}, key, wrong);
  }
}

}  // namespace

void CheckFields(const Message& message, const std::string& section, Problems& problems) {
  if (!message.GetReflection()->GetUnknownFields(message).empty()) {
    problems.Add({}, section,
                 "found fields that this version does not know, expected a job made for this version");
  }
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    CheckField(message, field, KeyPath(section, field.name()), problems);
  }
}

void CheckComplete(const Message& message, const Message& complete, const std::string& section,
                   Problems& problems) {
  const Reflection& reflection = *message.GetReflection();
  const auto holds = [&](const Message& in, const FieldDescriptor& field) {
    return field.is_repeated() ? reflection.FieldSize(in, &field) > 0 : reflection.HasField(in, &field);
  };
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string key = KeyPath(section, field.name());
    if (holds(complete, field) && !holds(message, field)) {
      problems.Add({}, key, absl::StrCat("missing, expected a complete job with ", Expectation(field)));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated() &&
               holds(message, field)) {
      CheckComplete(reflection.GetMessage(message, &field), reflection.GetMessage(complete, &field), key,
                    problems);
    }
  }
}

}  // namespace metp
