#pragma once

// What a job reads, as training sequences. A Dataset is opened by every rank over the same sources and
// answers the same everywhere: the k-th sequence of the job depends on the sources, sequence_length and
// data.seed alone. Files are memory mapped, so a rank touches the tokens that it uses and no others.
// Thread-compatible (const methods may run at once).
//
// A source is one stream of tokens: with tokenizer `bytes`, the files of `source` in order (a folder: its
// regular files, recursively, sorted by path, each real file once however many links lead to it), each
// followed by the end-of-document token 256; with *.bin, the elements of the files. Sequence i of the stream
// is tokens [i s, (i+1) s) with targets one further on, so a stream of T tokens holds floor((T - 1) / s)
// sequences; a shorter tail is not used. The order is a seeded permutation, a new one for each epoch.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"

namespace metp {

class Dataset {
 public:
  /// `job`: normalized. Errors say what is wrong with data.source, naming the file: NotFound (missing source), InvalidArgument
  /// (nothing readable in a folder, size not a multiple of the element, "corpus.bin: token 70000 at position
  /// 12 is beyond the vocabulary of 50257 (model.vocab)", "found 812 tokens, expected at least 4097
  /// (data.sequence_length + 1)").
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const v1::JobSpec& job);
  virtual ~Dataset() = default;

  virtual int64_t tokens() const = 0;     // of the stream
  virtual int64_t sequences() const = 0;  // per epoch
  /// Tokens and next-token targets at positions [begin, end) of the job's k-th sequence, k counting from 0
  /// through epochs.
  virtual void Read(int64_t k, int64_t begin, int64_t end, int32_t* tokens, int32_t* targets) const = 0;
  /// Positions at which documents start in the job's k-th sequence: ascending, the first is 0.
  virtual std::vector<int64_t> DocumentStarts(int64_t k) const = 0;
};

}  // namespace metp
