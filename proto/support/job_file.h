#pragma once

// Reading a job: YAML text in, a checked JobSpec out. The schema is metp/v1/job.proto alone; this file knows
// no key by name except where two keys must agree (ValidateJob). Shared by metpctl and `metp-rank run`; the
// coordinator validates what it receives with the same functions, so that a job from another client is held
// to the same rules.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"

namespace metp {

/// Reads `path`, applies `overrides` ("train.steps=10", same syntax and checks as a YAML value; named "--set"
/// in errors), checks every key, type and range against the schema, normalizes and validates. Relative
/// paths (data.source, checkpoint.directory, checkpoint.resume) are relative to the job file's folder, and stored absolute. InvalidArgument "FILE:LINE:
/// train.steps: found -1, expected an integer of at least 1" (all problems, one a line); NotFound when the
/// file cannot be read.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path,
                                        const std::vector<std::string>& overrides = {});

/// What turned out to be wrong with a job once its file had been read (its data, the cluster), said as LoadJobFile would:
/// InvalidArgument "FILE:LINE: KEY: MESSAGE".
absl::Status ProblemInJobFile(const std::string& path, const std::vector<std::string>& overrides,
                              const std::string& key, const std::string& message);

/// The same from text; `name` stands for the file in messages; relative sources are left as they are.
absl::StatusOr<v1::JobSpec> ParseJob(const std::string& text, const std::string& name,
                                     const std::vector<std::string>& overrides = {});

/// Fills every absent optional field with its documented default (kv_heads, head_dim, vocab, schedule, ...).
void NormalizeJob(v1::JobSpec& job);

/// Rules of single fields (for jobs that did not come from a file) and those that tie fields together: heads
/// a multiple of kv_heads, hidden a multiple of heads unless head_dim is given, even head_dim for llama,
/// micro_batch divides sequences_per_step, max_positions at least sequence_length, tokenizer and sources
/// agree. Expects a normalized job. InvalidArgument naming the key, what was found and what was expected.
absl::Status ValidateJob(const v1::JobSpec& job);

}  // namespace metp
