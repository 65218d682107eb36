#pragma once

// The built-in tokenizers' names and sizes, needed where a job is completed and checked as well as where data
// is read. Constants only.

#include <cstdint>
#include <string_view>

namespace metp {

/// `bytes`: token t in 0..255 is the byte t; 256 ends a document.
inline constexpr std::string_view kBytesTokenizer = "bytes";
inline constexpr int32_t kBytesEndOfDocument = 256;
inline constexpr int32_t kBytesVocab = 257;

/// `none`: sources are flat files of tokens that another program made, recognised by their name's end.
inline constexpr std::string_view kNoTokenizer = "none";
inline constexpr std::string_view kTokenFileEnding = ".bin";

}  // namespace metp
