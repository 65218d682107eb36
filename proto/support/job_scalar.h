#pragma once

// One YAML scalar into one field of a message. Pure.

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/support/yaml_tree.h"

namespace metp {

/// Sets the field to the scalar `node`, or adds it where the field is a list. False, with `message` as it
/// was, when the node is of another type or breaks the field's bounds. Quoted scalars are texts, never
/// numbers or truth values.
bool SetScalar(const google::protobuf::FieldDescriptor& field, const YamlNode& node,
               google::protobuf::Message& message);

/// " that fits 32 bits" and the like where `node` is a number beyond the field's type, otherwise empty.
std::string TypeLimit(const google::protobuf::FieldDescriptor& field, const YamlNode& node);

}  // namespace metp
