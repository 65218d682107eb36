// Defaults. The only place that knows them; job.proto's help texts repeat them for people. Safe for any
// message: what cannot be derived stays absent and is ValidateJob's to name.

#include <algorithm>

#include "absl/strings/match.h"
#include "proto/support/job_file.h"
#include "proto/support/tokenizers.h"

namespace metp {
namespace {

bool IsTokenFile(const std::string& source) {
  return absl::EndsWith(source, {kTokenFileEnding.data(), kTokenFileEnding.size()});
}

void NormalizeData(v1::DataSpec& data) {
  if (!data.has_tokenizer()) {
    const bool token_files =
        data.source_size() > 0 && std::all_of(data.source().begin(), data.source().end(), IsTokenFile);
    data.set_tokenizer(std::string(token_files ? kNoTokenizer : kBytesTokenizer));
  }
  if (!data.has_seed()) {
    data.set_seed(1);
  }
  if (!data.has_token_type()) {
    data.set_token_type(v1::DataSpec::TOKEN_TYPE_UINT16);
  }
  if (!data.has_document_mask()) {
    data.set_document_mask(false);
  }
}

/// After the data: the tokenizer gives the vocabulary's size, the sequence length that of the position table.
void NormalizeModel(const v1::DataSpec& data, v1::ModelSpec& model) {
  if (!model.has_kv_heads() && model.heads() > 0) {
    model.set_kv_heads(model.heads());
  }
  if (!model.has_head_dim() && model.heads() > 0 && model.hidden() > 0 &&
      model.hidden() % model.heads() == 0) {
    model.set_head_dim(model.hidden() / model.heads());
  }
  if (!model.has_rope_theta()) {
    model.set_rope_theta(10000);
  }
  if (!model.has_norm_eps()) {
    model.set_norm_eps(1e-5);
  }
  if (!model.has_tie_embeddings()) {
    model.set_tie_embeddings(model.family() == v1::ModelSpec::FAMILY_GPT2);
  }
  if (!model.has_causal()) {
    model.set_causal(true);
  }
  if (!model.has_vocab() && data.tokenizer() == kBytesTokenizer) {
    model.set_vocab(kBytesVocab);
  }
  if (!model.has_max_positions() && data.sequence_length() > 0) {
    model.set_max_positions(data.sequence_length());
  }
}

void NormalizeTrain(v1::TrainSpec& train) {
  if (!train.has_sequences_per_step()) {
    train.set_sequences_per_step(1);
  }
  if (!train.has_micro_batch()) {
    train.set_micro_batch(1);
  }
  if (!train.has_warmup_steps()) {
    train.set_warmup_steps(0);
  }
  if (!train.has_schedule()) {
    train.set_schedule(v1::TrainSpec::SCHEDULE_COSINE);
  }
  if (!train.has_min_learning_rate()) {
    train.set_min_learning_rate(0);
  }
  if (train.betas().empty()) {
    train.add_betas(0.9);
    train.add_betas(0.95);
  }
  if (!train.has_eps()) {
    train.set_eps(1e-8);
  }
  if (!train.has_weight_decay()) {
    train.set_weight_decay(0.1);
  }
  if (!train.has_clip_norm()) {
    train.set_clip_norm(1.0);
  }
  if (!train.has_seed()) {
    train.set_seed(1);
  }
  if (!train.has_stop_after()) {
    train.set_stop_after(train.steps());
  }
}

void NormalizeParallel(v1::ParallelSpec& parallel) {
  if (!parallel.has_degree()) {
    parallel.set_degree(1);
  }
  if (!parallel.has_head_groups()) {
    parallel.set_head_groups(0);
  }
  if (!parallel.has_tile_rows()) {
    parallel.set_tile_rows(0);
  }
  if (!parallel.has_attention()) {
    parallel.set_attention(v1::ParallelSpec::ATTENTION_FLASH);
  }
  if (!parallel.has_require_full_overlap()) {
    parallel.set_require_full_overlap(false);
  }
  if (parallel.offload_size() == 0) {
    parallel.add_offload(v1::ParallelSpec::OFFLOAD_NONE);
  }
  if (!parallel.has_rings()) {
    parallel.set_rings(1);
  }
  if (!parallel.has_recompute()) {
    parallel.set_recompute(v1::ParallelSpec::RECOMPUTE_SELECTIVE);
  }
  if (!parallel.has_min_degree()) {
    parallel.set_min_degree(std::max(1, parallel.degree()));
  }
}

void NormalizeCheckpoint(v1::CheckpointSpec& checkpoint) {
  if (!checkpoint.has_every_steps()) {
    checkpoint.set_every_steps(100);
  }
  if (!checkpoint.has_keep()) {
    checkpoint.set_keep(3);
  }
  if (!checkpoint.has_resume()) {
    checkpoint.set_resume("auto");
  }
}

}  // namespace

void NormalizeJob(v1::JobSpec& job) {
  // A required section that is absent stays so, to be reported as missing.
  if (job.has_data()) {
    NormalizeData(*job.mutable_data());
  }
  if (job.has_model()) {
    NormalizeModel(job.data(), *job.mutable_model());
  }
  if (job.has_train()) {
    NormalizeTrain(*job.mutable_train());
  }
  NormalizeParallel(*job.mutable_parallel());
  if (!job.has_max_restarts()) {
    job.set_max_restarts(3);
  }
  if (!job.has_device()) {
    job.set_device(v1::JobSpec::DEVICE_AUTO);
  }
  if (!job.has_priority()) {
    job.set_priority(0);
  }
  if (!job.has_namespace_()) {
    job.set_namespace_("default");
  }
  if (job.has_checkpoint()) {
    NormalizeCheckpoint(*job.mutable_checkpoint());
  }
}

}  // namespace metp
