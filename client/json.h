#pragma once

// Messages for programs: protobuf's JSON mapping with the names of the .proto files, defaults written out.
// 64-bit integers are strings, as that mapping has it.

#include <string>

#include "google/protobuf/message.h"

namespace metp {

std::string ToJson(const google::protobuf::Message& message, bool pretty = true);

}  // namespace metp
