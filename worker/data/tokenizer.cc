// The tokenizers by name.

#include "worker/data/tokenizer.h"

#include "absl/strings/str_cat.h"
#include "proto/support/tokenizers.h"

namespace metp {

absl::StatusOr<Encoding> EncodingOf(const v1::DataSpec& data) {
  if (data.tokenizer() == kBytesTokenizer) {
    return Encoding{1, kBytesEndOfDocument, kBytesEndOfDocument};
  }
  if (data.tokenizer() != kNoTokenizer) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.tokenizer: found \"", data.tokenizer(), "\", expected bytes or none"));
  }
  Encoding encoding;
  switch (data.token_type()) {
    case v1::DataSpec::TOKEN_TYPE_UINT16:
      encoding.width = 2;
      break;
    case v1::DataSpec::TOKEN_TYPE_UINT32:
      encoding.width = 4;
      break;
    default:
      return absl::InvalidArgumentError("data.token_type: found nothing, expected uint16 or uint32");
  }
  if (data.has_end_of_document()) {
    encoding.end_of_document = static_cast<int32_t>(data.end_of_document());
  }
  return encoding;
}

}  // namespace metp
