#pragma once

// The job's schema as its descriptors and their (metp.v1.rule) options tell it: what a field may hold, in
// words and as a check. Names no key. Pure functions.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "metp/v1/options.pb.h"
#include "proto/support/job_problems.h"

namespace metp {

const v1::Rule& RuleOf(const google::protobuf::FieldDescriptor& field);

/// "train" and "steps" make "train.steps".
std::string KeyPath(const std::string& section, const std::string& name);

/// What the field expects: "an integer of at least 1", "auto, none or an integer of at least 1", "gpt2 or
/// llama", "a list of 2 numbers of at least 0 and less than 1", "a section (steps, learning_rate)".
std::string Expectation(const google::protobuf::FieldDescriptor& field);
/// The same for one element of a list; of a field that is no list, the same as Expectation.
std::string ElementExpectation(const google::protobuf::FieldDescriptor& field);
/// "a section (name, model, data, train)": a message's required keys, or all of them where none is required.
std::string SectionExpectation(const google::protobuf::Descriptor& section);
/// "missing, expected an integer of at least 1: optimizer steps".
std::string Missing(const google::protobuf::FieldDescriptor& field);

/// An enum value as a job file writes it: FAMILY_LLAMA is "llama". Empty for the unspecified one.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);
/// The value written as `word`; null when there is none.
const google::protobuf::EnumValueDescriptor* FindEnumWord(const google::protobuf::EnumDescriptor& type,
                                                          absl::string_view word);
/// The number that the field's rule spells as `word` ("auto").
std::optional<int64_t> WordValue(const google::protobuf::FieldDescriptor& field, absl::string_view word);

/// Whether the rule's bounds hold; not for NaN and infinities.
bool WithinBounds(const google::protobuf::FieldDescriptor& field, double value);

/// Adds every field below `message` whose value breaks its own rule. Absent optional fields are not looked
/// at.
void CheckFields(const google::protobuf::Message& message, const std::string& section, Problems& problems);
/// Adds every optional field that `complete` holds and `message`, of the same type, does not.
void CheckComplete(const google::protobuf::Message& message, const google::protobuf::Message& complete,
                   const std::string& section, Problems& problems);

}  // namespace metp
