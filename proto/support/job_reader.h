#pragma once

// From a YAML tree to a message, by the schema alone: every key is looked up in the message's descriptor and
// every value converted to its field's type. Pure.

#include "google/protobuf/message.h"
#include "proto/support/job_problems.h"
#include "proto/support/yaml_tree.h"

namespace metp {

/// Sets in `message` what `root` gives. Adds to `problems` what it cannot take: unknown keys and keys given
/// twice, values of another type or beyond their bounds, required keys that are missing. `places` receives
/// the place of every key.
void ReadMessage(const YamlNode& root, google::protobuf::Message& message, Places& places,
                 Problems& problems);

}  // namespace metp
