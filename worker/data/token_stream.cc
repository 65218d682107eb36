// Reading fixed-width tokens across file borders. Loops over tokens are plain, so that the compiler
// vectorises them.

#include "worker/data/token_stream.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read where they lie");

/// Calls `use` with the file's elements as their unsigned type.
template <typename Use>
void WithElements(const MappedFile& file, int width, Use use) {
  switch (width) {
    case 1:
      return use(file.data());
    case 2:
      return use(reinterpret_cast<const uint16_t*>(file.data()));
    default:
      return use(reinterpret_cast<const uint32_t*>(file.data()));
  }
}

/// Index of the first element that is not below `vocab`; `count` when all are.
template <typename Element>
int64_t FirstBeyond(const Element* elements, int64_t count, int64_t vocab) {
  constexpr int64_t kBlock = 1 << 16;
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t end = std::min(count, block + kBlock);
    Element largest = 0;
    for (int64_t i = block; i < end; ++i) {
      largest = std::max(largest, elements[i]);
    }
    if (static_cast<int64_t>(largest) >= vocab) {
      return std::find_if(elements + block, elements + end,
                          [&](Element e) { return static_cast<int64_t>(e) >= vocab; }) -
             elements;
    }
  }
  return count;
}

}  // namespace

absl::StatusOr<TokenStream> TokenStream::Open(const std::vector<std::string>& files,
                                              const Encoding& encoding) {
  TokenStream stream(encoding);
  for (const std::string& path : files) {
    METP_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    if (file.size() % encoding.width != 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": found ", file.size(),
                                                     " bytes, expected a multiple of ", encoding.width,
                                                     " (data.token_type)"));
    }
    const int64_t tokens = file.size() / encoding.width;
    const int64_t length = tokens + (encoding.appended >= 0 ? 1 : 0);
    if (length > 0) {
      stream.segments_.push_back({std::move(file), stream.size_, tokens});
      stream.size_ += length;
    }
  }
  return stream;
}

absl::Status TokenStream::CheckVocabulary(int64_t vocab) const {
  const auto wrong = [&](const std::string& path, int64_t token, int64_t position) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": token ", token, " at position ", position,
                                                   " is beyond the vocabulary of ", vocab, " (model.vocab)"));
  };
  if (encoding_.appended < vocab && vocab >= int64_t{1} << (8 * encoding_.width)) {
    return absl::OkStatus();  // no element can be beyond it: nothing needs to be read
  }
  for (const Segment& segment : segments_) {
    absl::Status status;
    WithElements(segment.file, encoding_.width, [&](const auto* elements) {
      const int64_t first = FirstBeyond(elements, segment.tokens, vocab);
      if (first < segment.tokens) {
        status = wrong(segment.file.path(), elements[first], first);
      }
    });
    METP_RETURN_IF_ERROR(status);
    if (encoding_.appended >= vocab) {
      return wrong(segment.file.path(), encoding_.appended, segment.tokens);
    }
    segment.file.ForgetPages();
  }
  return absl::OkStatus();
}

std::vector<TokenStream::Segment>::const_iterator TokenStream::SegmentAt(int64_t position) const {
  return std::prev(std::upper_bound(segments_.begin(), segments_.end(), position,
                                    [](int64_t p, const Segment& segment) { return p < segment.begin; }));
}

void TokenStream::Read(int64_t begin, int64_t count, int32_t* out) const {
  if (count <= 0) {
    return;
  }
  for (auto segment = SegmentAt(begin); count > 0; ++segment) {
    const int64_t first = begin - segment->begin;
    const int64_t here = std::clamp<int64_t>(segment->tokens - first, 0, count);
    WithElements(segment->file, encoding_.width, [&](const auto* elements) {
      for (int64_t i = 0; i < here; ++i) {
        out[i] = static_cast<int32_t>(elements[first + i]);
      }
    });
    out += here;
    begin += here;
    count -= here;
    if (count > 0 && encoding_.appended >= 0) {
      *out++ = encoding_.appended;
      ++begin;
      --count;
    }
  }
}

void TokenStream::FindDocumentStarts(int64_t begin, int64_t count, std::vector<int64_t>& out) const {
  if (encoding_.end_of_document < 0 || count <= 0) {
    return;
  }
  // A document starts at `position` when position - 1 holds its end: that is looked for in [begin - 1, begin
  // + count - 1).
  const int64_t from = std::max<int64_t>(begin - 1, 0), to = begin + count - 1;
  if (from >= to) {
    return;
  }
  for (auto segment = SegmentAt(from); segment != segments_.end() && segment->begin < to; ++segment) {
    const int64_t first = std::max<int64_t>(from - segment->begin, 0);
    const int64_t last = std::min(to - segment->begin, segment->tokens);
    if (encoding_.end_of_document != encoding_.appended) {  // otherwise it stands in no file
      WithElements(segment->file, encoding_.width, [&](const auto* elements) {
        for (int64_t i = first; i < last; ++i) {
          if (static_cast<int64_t>(elements[i]) == encoding_.end_of_document) {
            out.push_back(segment->begin + i + 1 - begin);
          }
        }
      });
    } else if (segment->begin + segment->tokens < to && segment->begin + segment->tokens >= from) {
      out.push_back(segment->begin + segment->tokens + 1 - begin);
    }
  }
}

}  // namespace metp
