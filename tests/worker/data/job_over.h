#pragma once

// Jobs over files of a test.

#include <cstdint>
#include <string>
#include <vector>

#include "metp/v1/job.pb.h"
#include "proto/support/job_file.h"
#include "worker/data/dataset.h"

namespace metp::test {

inline v1::JobSpec JobOver(const std::vector<std::string>& sources, int32_t sequence_length) {
  v1::JobSpec job;
  job.set_name("data");
  v1::ModelSpec& model = *job.mutable_model();
  model.set_family(v1::ModelSpec::FAMILY_LLAMA);
  model.set_layers(1);
  model.set_hidden(8);
  model.set_heads(2);
  model.set_ffn(8);
  for (const std::string& source : sources) {
    job.mutable_data()->add_source(source);
  }
  job.mutable_data()->set_sequence_length(sequence_length);
  job.mutable_train()->set_steps(1);
  job.mutable_train()->set_learning_rate(1);
  NormalizeJob(job);
  return job;
}

inline v1::JobSpec TokenJobOver(const std::string& source, int32_t sequence_length, int32_t vocab,
                                v1::DataSpec::TokenType type = v1::DataSpec::TOKEN_TYPE_UINT16) {
  v1::JobSpec job = JobOver({source}, sequence_length);
  job.mutable_model()->set_vocab(vocab);
  job.mutable_data()->set_token_type(type);
  return job;
}

/// `tokens` as a *.bin file holds them.
template <typename Element>
std::string Binary(const std::vector<Element>& tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Element));
}

/// One sequence of a dataset.
struct Sequence {
  std::vector<int32_t> tokens, targets;
};

inline Sequence ReadSequence(const Dataset& dataset, int64_t k, int64_t begin, int64_t end) {
  Sequence sequence;
  sequence.tokens.resize(static_cast<size_t>(end - begin));
  sequence.targets.resize(static_cast<size_t>(end - begin));
  dataset.Read(k, begin, end, sequence.tokens.data(), sequence.targets.data());
  return sequence;
}

}  // namespace metp::test
