// A Dataset is a token stream cut into sequences, visited in a seeded order.

#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "proto/support/tokenizers.h"
#include "worker/data/order.h"
#include "worker/data/sources.h"
#include "worker/data/token_stream.h"
#include "worker/data/tokenizer.h"

namespace metp {
namespace {

class StreamDataset final : public Dataset {
 public:
  StreamDataset(TokenStream stream, int64_t sequence_length, uint64_t seed)
      : stream_(std::move(stream)),
        length_(sequence_length),
        sequences_((stream_.size() - 1) / sequence_length),
        order_(sequences_, seed) {}

  int64_t tokens() const override { return stream_.size(); }
  int64_t sequences() const override { return sequences_; }

  void Read(int64_t k, int64_t begin, int64_t end, int32_t* tokens, int32_t* targets) const override {
    const int64_t count = end - begin;
    if (count <= 0) {
      return;
    }
    const int64_t first = order_.At(k) * length_ + begin;
    stream_.Read(first, count, tokens);
    std::copy(tokens + 1, tokens + count, targets);
    stream_.Read(first + count, 1, targets + count - 1);
  }

  std::vector<int64_t> DocumentStarts(int64_t k) const override {
    std::vector<int64_t> starts = {0};
    const int64_t first = order_.At(k) * length_;
    stream_.FindDocumentStarts(first, length_, starts);
    if (starts.size() > 1 && starts[1] == 0) {
      starts.erase(starts.begin());  // a document starts just where the sequence does
    }
    return starts;
  }

 private:
  const TokenStream stream_;
  const int64_t length_;
  const int64_t sequences_;  // per epoch
  const SequenceOrder order_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const v1::JobSpec& job) {
  const v1::DataSpec& data = job.data();
  const int64_t length = data.sequence_length();
  if (length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.sequence_length: found ", length, ", expected an integer of at least 1"));
  }
  METP_ASSIGN_OR_RETURN(const Encoding encoding, EncodingOf(data));
  std::vector<std::string> files(data.source().begin(), data.source().end());
  if (data.tokenizer() == kBytesTokenizer) {  // token files are named one by one
    METP_ASSIGN_OR_RETURN(files, ListFiles(files));
  }
  METP_ASSIGN_OR_RETURN(TokenStream stream, TokenStream::Open(files, encoding));
  if (stream.size() < length + 1) {
    return absl::InvalidArgumentError(absl::StrCat("found ", stream.size(), " tokens, expected at least ",
                                                   length + 1, " (data.sequence_length + 1)"));
  }
  METP_RETURN_IF_ERROR(stream.CheckVocabulary(job.model().vocab()));
  return std::make_unique<StreamDataset>(std::move(stream), length, static_cast<uint64_t>(data.seed()));
}

}  // namespace metp
