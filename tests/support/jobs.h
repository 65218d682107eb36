#pragma once

// Small valid jobs for tests of the services.

#include <string>

#include "metp/v1/job.pb.h"

namespace metp {

/// Complete but for what NormalizeJob fills in. A fault is its end.
inline v1::JobSpec SmallJob(const std::string& name, int degree, int steps = 10,
                            const std::string& source = "text.txt") {
  v1::JobSpec job;
  job.set_name(name);
  v1::ModelSpec& model = *job.mutable_model();
  model.set_family(v1::ModelSpec::FAMILY_LLAMA);
  model.set_layers(1);
  model.set_hidden(16);
  model.set_heads(2);
  model.set_ffn(32);
  job.mutable_data()->add_source(source);
  job.mutable_data()->set_tokenizer("bytes");
  job.mutable_data()->set_sequence_length(32);
  job.mutable_train()->set_steps(steps);
  job.mutable_train()->set_learning_rate(1e-3);
  job.mutable_parallel()->set_degree(degree);
  job.set_max_restarts(0);
  return job;
}

}  // namespace metp
