#pragma once

// Jobs and device profiles for tests of plans: nothing is read, so sources need not exist.

#include <string>
#include <vector>

#include "proto/support/job_file.h"
#include "tests/support/status_matchers.h"
#include "worker/backend/sim/profile.h"

namespace metp {

/// `model`: the section's content in YAML.
inline v1::JobSpec PlannedJob(const std::string& model, int64_t s,
                              const std::vector<std::string>& overrides = {}) {
  const auto job = ParseJob("name: planned\nmodel: {" + model + "}\ndata: {source: x, sequence_length: " +
                                std::to_string(s) + "}\ntrain: {steps: 1, learning_rate: 1e-3}\n",
                            "planned.yaml", overrides);
  EXPECT_THAT(job, IsOk());
  return *job;
}

inline v1::JobSpec Llama8B(int64_t s, const std::vector<std::string>& overrides = {}) {
  return PlannedJob(
      "family: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256", s,
      overrides);
}

inline v1::DeviceProfile Profile(const std::string& name) {
  const auto profile = LoadProfile(name);
  EXPECT_THAT(profile, IsOk());
  return *profile;
}

}  // namespace metp
