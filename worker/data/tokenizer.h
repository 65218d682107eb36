#pragma once

// How the bytes of source files are tokens. A tokenizer here is a fixed-width encoding that needs no state:
// tokens are read where they lie. One that does need work is run beforehand and gives *.bin files.

#include <cstdint>

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"

namespace metp {

struct Encoding {
  int width = 1;                 // bytes of a token in a file: 1, 2 or 4, unsigned, little-endian
  int32_t appended = -1;         // token that follows each file without standing in it; -1: none
  int32_t end_of_document = -1;  // token after which a new document starts; -1: the stream is one document
};

/// What `data`, normalized, asks for. InvalidArgument for an unknown tokenizer or token type.
absl::StatusOr<Encoding> EncodingOf(const v1::DataSpec& data);

}  // namespace metp
