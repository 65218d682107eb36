// Rules that tie keys together. Rules of single keys stand in job.proto, beside the keys.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/job_file.h"
#include "proto/support/job_rules.h"
#include "proto/support/job_schema.h"
#include "proto/support/tokenizers.h"

namespace metp {
namespace {

constexpr char kNameRule[] = "1 to 63 letters, digits, '-', '.' and '_', a letter or digit first";
constexpr size_t kLongestName = 63;  // of a DNS label: names become labels and folder names elsewhere

template <typename Found>
void Expect(bool holds, absl::string_view key, const Found& found, absl::string_view expected,
            Problems& problems) {
  if (!holds) {
    problems.Add({}, key, absl::StrCat("found ", found, ", expected ", expected));
  }
}

bool ValidName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
         });
}

void CheckModel(const v1::ModelSpec& model, Problems& problems) {
  Expect(model.heads() % model.kv_heads() == 0, "model.kv_heads", model.kv_heads(),
         absl::StrCat("a divisor of model.heads (", model.heads(), ")"), problems);
  if (!model.has_head_dim()) {
    Expect(false, "model.heads", model.heads(),
           absl::StrCat("a divisor of model.hidden (", model.hidden(), "), or model.head_dim to be given"),
           problems);
    return;
  }
  Expect(model.family() != v1::ModelSpec::FAMILY_LLAMA || model.head_dim() % 2 == 0, "model.head_dim",
         model.head_dim(), "an even number: rotary positions turn pairs", problems);
  const int64_t width = int64_t{model.heads()} * model.head_dim();
  Expect(width <= std::numeric_limits<int32_t>::max(), "model.heads", model.heads(),
         absl::StrCat("heads x head_dim of at most ", std::numeric_limits<int32_t>::max(), ", not ", width),
         problems);
}

/// The tokenizer, its vocabulary and the sources.
void CheckData(const v1::DataSpec& data, const v1::ModelSpec& model, Problems& problems) {
  const bool bytes = data.tokenizer() == kBytesTokenizer;
  Expect(bytes || data.tokenizer() == kNoTokenizer, "data.tokenizer", Shown(data.tokenizer()),
         absl::StrCat(std::string(kBytesTokenizer), " or ", std::string(kNoTokenizer)), problems);
  for (int i = 0; i < data.source_size(); ++i) {
    const std::string& source = data.source(i);
    const std::string key = absl::StrCat("data.source[", i, "]");
    const bool token_file = absl::EndsWith(source, ".bin");
    Expect(!source.empty() && !absl::StrContains(source, '\0'), key, absl::StrCat("\"", Shown(source), "\""),
           "the path of a file or folder", problems);
    Expect(!bytes || !token_file, key, Shown(source), "text files or folders (data.tokenizer is bytes)",
           problems);
    Expect(data.tokenizer() != kNoTokenizer || token_file, key, Shown(source),
           "a *.bin file (data.tokenizer is none)", problems);
  }
  constexpr int32_t kLongest =
      std::numeric_limits<int32_t>::max() - 1;  // one more token is read for the targets
  Expect(data.sequence_length() <= kLongest, "data.sequence_length", data.sequence_length(),
         absl::StrCat("an integer of at most ", kLongest), problems);
  const bool table = model.family() == v1::ModelSpec::FAMILY_GPT2;
  Expect(!table || model.max_positions() >= data.sequence_length(), "model.max_positions",
         model.max_positions(), absl::StrCat("at least data.sequence_length (", data.sequence_length(), ")"),
         problems);
  if (!model.has_vocab()) {
    if (data.tokenizer() != kNoTokenizer) return;  // unknown, and said
    problems.Add({}, "model.vocab",
                 "missing, expected the vocabulary's size (data.tokenizer none does not tell it)");
    return;
  }
  Expect(!bytes || model.vocab() >= kBytesVocab, "model.vocab", model.vocab(),
         absl::StrCat("at least ", kBytesVocab, ", the size of tokenizer bytes"), problems);
  if (data.has_end_of_document()) {
    Expect(data.end_of_document() < model.vocab(), "data.end_of_document", data.end_of_document(),
           absl::StrCat("a token below model.vocab (", model.vocab(), ")"), problems);
    Expect(!bytes || data.end_of_document() == kBytesEndOfDocument, "data.end_of_document",
           data.end_of_document(),
           absl::StrCat(kBytesEndOfDocument, ", or no such key: tokenizer bytes has its own"), problems);
  } else if (data.document_mask() && !bytes) {
    problems.Add({}, "data.end_of_document",
                 "missing, expected the token that ends a document (data.document_mask is true)");
  }
}

void CheckTrain(const v1::TrainSpec& train, Problems& problems) {
  Expect(train.sequences_per_step() % train.micro_batch() == 0, "train.micro_batch", train.micro_batch(),
         absl::StrCat("a divisor of train.sequences_per_step (", train.sequences_per_step(), ")"), problems);
  Expect(!train.has_stop_after() || train.stop_after() <= train.steps(), "train.stop_after",
         train.stop_after(), absl::StrCat("at most train.steps (", train.steps(), ")"), problems);
  Expect(train.min_learning_rate() <= train.learning_rate(), "train.min_learning_rate",
         train.min_learning_rate(), absl::StrCat("at most train.learning_rate (", train.learning_rate(), ")"),
         problems);
}

void CheckParallel(const v1::TrainSpec& train, const v1::ParallelSpec& parallel, Problems& problems) {
  const int batches = train.sequences_per_step() / train.micro_batch();
  Expect(parallel.degree() == 0 || parallel.min_degree() <= parallel.degree(), "parallel.min_degree",
         parallel.min_degree(), absl::StrCat("at most parallel.degree (", parallel.degree(), ")"), problems);
  Expect(parallel.rings() == 0 || batches % parallel.rings() == 0, "parallel.rings", parallel.rings(),
         absl::StrCat("a divisor of train.sequences_per_step / train.micro_batch (", batches, ")"), problems);
  constexpr int64_t kMostRanks = 1'000'000;
  const int64_t ranks = int64_t{parallel.degree()} * std::max(1, parallel.rings());
  Expect(ranks <= kMostRanks, "parallel.rings",
         absl::StrCat(parallel.rings(), " of degree ", parallel.degree()),
         absl::StrCat("at most ", kMostRanks, " ranks in all"), problems);
  for (const int offload : parallel.offload()) {
    const bool of_list = (offload == v1::ParallelSpec::OFFLOAD_ACTIVATIONS ||
                          offload == v1::ParallelSpec::OFFLOAD_OPTIMIZER) &&
                         std::count(parallel.offload().begin(), parallel.offload().end(), offload) == 1;
    Expect(parallel.offload_size() == 1 || of_list, "parallel.offload",
           absl::StrCat("a list of ", parallel.offload_size()),
           "none or auto alone, or what is offloaded, once each", problems);
    if (!problems.empty()) return;
  }
}

void ExpectAtMost(absl::int128 found, int64_t limit, absl::string_view key, absl::string_view what,
                  Problems& problems) {
  Expect(found <= limit, key, absl::StrCat(static_cast<double>(found), " ", what),
         absl::StrCat("at most ", static_cast<double>(limit)), problems);
}

/// Sizes that 64-bit counts of bytes, tokens and elements cannot hold. Every factor is a positive int32 here.
void CheckSizes(const v1::JobSpec& job, Problems& problems) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const v1::ModelSpec& model = job.model();
  const absl::int128 hidden = model.hidden(), layers = model.layers();
  const absl::int128 attention =
      absl::int128(model.head_dim()) * (2 * int64_t{model.heads()} + 2 * int64_t{model.kv_heads()});
  const absl::int128 mlp = absl::int128(model.ffn()) * 3;
  const absl::int128 tables = 2 * absl::int128(model.vocab()) + model.max_positions();
  constexpr int64_t kStateBytes = 18;  // of weight, master, moments and gradient, per parameter
  ExpectAtMost(layers * hidden * (attention + mlp + 8) + hidden * tables, kMost / kStateBytes, "model",
               "parameters", problems);

  const absl::int128 rows = absl::int128(job.train().micro_batch()) * job.data().sequence_length();
  const absl::int128 width = std::max<int64_t>(
      {int64_t{model.hidden()} + int64_t{model.heads()} * model.head_dim(), model.ffn(), model.vocab()});
  ExpectAtMost(rows * width * layers, kMost / 16, "train.micro_batch",
               "activations (micro_batch x sequence_length x layers x width)", problems);
  ExpectAtMost(
      absl::int128(job.train().steps()) * job.train().sequences_per_step() * job.data().sequence_length(),
      kMost, "train.steps", "tokens (steps x sequences_per_step x sequence_length)", problems);
}

}  // namespace

Problems CheckJob(const v1::JobSpec& job) {
  Problems problems;
  CheckFields(job, "", problems);
  v1::JobSpec complete = job;
  NormalizeJob(complete);
  CheckComplete(job, complete, "", problems);
  if (!ValidName(job.name())) {
    problems.Add({}, "name", absl::StrCat("found \"", Shown(job.name()), "\", expected ", kNameRule));
  }
  if (job.has_namespace_() && !ValidName(job.namespace_())) {
    problems.Add({}, "namespace",
                 absl::StrCat("found \"", Shown(job.namespace_()), "\", expected ", kNameRule));
  }
  if (!problems.empty()) {
    return problems;  // what follows divides and multiplies
  }
  CheckModel(job.model(), problems);
  CheckData(job.data(), job.model(), problems);
  CheckTrain(job.train(), problems);
  CheckParallel(job.train(), job.parallel(), problems);
  if (problems.empty()) {
    CheckSizes(job, problems);
  }
  return problems;
}

absl::Status ValidateJob(const v1::JobSpec& job) { return CheckJob(job).ToStatus(""); }

}  // namespace metp
