#pragma once

// The smallest complete job file, and ways to change one line of it.

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace metp::test {

inline constexpr std::string_view kJob = R"(name: small
model:
  family: llama
  layers: 2
  hidden: 64
  heads: 4
  ffn: 96
data:
  source: corpus.txt
  sequence_length: 128
train:
  steps: 10
  learning_rate: 1e-3
)";

/// kJob with its line `line` ("steps: 10", without indentation) replaced, by several lines perhaps.
inline std::string JobWith(std::string_view line, std::string_view replacement) {
  std::string text(kJob);
  const size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return text.replace(at, line.size(), replacement);
}

}  // namespace metp::test
