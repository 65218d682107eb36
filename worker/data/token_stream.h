#pragma once

// The tokens of all source files as one sequence of int32, read from the mapped files. Immutable once open:
// any thread may read. Nothing of the text is copied but what a caller asks for.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/mapped_file.h"
#include "worker/data/tokenizer.h"

namespace metp {

class TokenStream {
 public:
  /// Errors of MappedFile::Open, and InvalidArgument "x.bin: found 7 bytes, expected a multiple of 2
  /// (data.token_type)".
  static absl::StatusOr<TokenStream> Open(const std::vector<std::string>& files, const Encoding& encoding);

  int64_t size() const { return size_; }  // tokens

  /// Reads every token once, unless their type rules out the error. InvalidArgument names the first that is
  /// not below `vocab`, its file and position in it.
  absl::Status CheckVocabulary(int64_t vocab) const;

  /// Tokens [begin, begin + count), all within the stream, to `out`.
  void Read(int64_t begin, int64_t count, int32_t* out) const;

  /// Appends the positions in [begin, begin + count), less `begin`, that directly follow an end of document.
  /// Ascending.
  void FindDocumentStarts(int64_t begin, int64_t count, std::vector<int64_t>& out) const;

 private:
  /// One file's share of the stream: its own tokens, then perhaps the appended one.
  struct Segment {
    MappedFile file;
    int64_t begin = 0;   // in the stream
    int64_t tokens = 0;  // that stand in the file
  };

  explicit TokenStream(const Encoding& encoding) : encoding_(encoding) {}
  std::vector<Segment>::const_iterator SegmentAt(int64_t position) const;

  Encoding encoding_;
  std::vector<Segment> segments_;  // contiguous, none empty, ascending
  int64_t size_ = 0;
};

}  // namespace metp
