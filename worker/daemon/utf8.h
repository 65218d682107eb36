#pragma once

// Output of a process is bytes; a protobuf string must be UTF-8, or the whole message is refused by its
// reader.

#include <string>
#include <string_view>

namespace metp {

/// `bytes` with everything that is not UTF-8 replaced by U+FFFD.
std::string ToUtf8(std::string_view bytes);

}  // namespace metp
