#pragma once

// A checkpoint's weights as a folder that Hugging Face's transformers, and whatever else reads its format, opens:
//
//     DIR/                                while it is written DIR.partial
//         config.json                     the class and its sizes
//         model.safetensors               or, above a size, model-00001-of-0000N.safetensors for each part of it, and
//         model.safetensors.index.json    which tensor is in which part
//
// Family llama is LlamaForCausalLM, gpt2 is GPT2LMHeadModel. Here a matrix is W [in, out] with y = x W; GPT-2's Conv1D keeps
// it so, Llama's Linear has it transposed, [out, in]. Both sides turn rotary positions by halves (i, i + d/2), number heads
// alike and mean GELU in its tanh form, so that nothing else changes:
//
//     here (of layer N "lN.")         LlamaForCausalLM, model.layers.N.            GPT2LMHeadModel, transformer.h.N.
//     wq, wk, wv  [h, heads d]        self_attn.{q,k,v}_proj.weight  transposed    attn.c_attn.weight  [h, 3 h], side by side
//     wo          [a d, h]            self_attn.o_proj.weight        transposed    attn.c_proj.weight
//     w1, w3, w2  [h, f], [f, h]      mlp.{gate,up,down}_proj.weight transposed    mlp.c_fc.weight, none, mlp.c_proj.weight
//     n1.w, n2.w  [h]                 {input,post_attention}_layernorm.weight      ln_1.weight, ln_2.weight, and their .bias
//     wte, wpe    [V, h]              model.embed_tokens.weight, none              transformer.{wte,wpe}.weight
//     nf.w        [h]                 model.norm.weight                            transformer.ln_f.weight, and its .bias
//     head        [V, h]              lm_head.weight, where it is not wte          the same
//
// GPT2LMHeadModel has as many key/value heads as query heads: where the model has fewer, each is written once for every
// query head that uses it, which computes the same.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/file_system.h"

namespace metp {

enum class ExportType { kF32, kBF16 };

struct HuggingFaceOptions {
  ExportType type = ExportType::kF32;  // bf16: rounded to nearest, ties to even
  int64_t part_bytes = 5'000'000'000;  // of tensors in a file; a larger tensor has a file of its own
  int64_t held_elements = 8 << 20;     // of a tensor in memory at once, about twice; at least a row
};

struct HuggingFaceExport {
  int step = 0;            // of the checkpoint
  int64_t parameters = 0;  // elements written
  int64_t bytes = 0;       // of them, without headers
  int parts = 1;           // files that they are in
};

/// Writes the weights of the checkpoint in the folder `from`, of any number of ranks, into the folder `to`, which must not
/// be there or be empty. The whole is synchronised and then renamed, once; on an error nothing of it stays. An unfinished
/// export that an earlier crash left is replaced.
/// AlreadyExists: `to` holds something, or DIR.partial something that no export wrote. NotFound, DataLoss and others of
/// CheckpointReader. FailedPrecondition: transformers has no class for the model (bidirectional attention; gpt2 with heads x
/// head_dim other than hidden), naming what was found. ResourceExhausted, Unavailable: it cannot be written.
absl::StatusOr<HuggingFaceExport> ExportHuggingFace(FileSystem& files, const std::string& from,
                                                    const std::string& to,
                                                    const HuggingFaceOptions& options = {});

}  // namespace metp
