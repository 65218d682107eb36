#include "worker/checkpoint/hugging_face.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/tokenizer.h"
#include "worker/model/config.h"

namespace metp {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kPartial[] = ".partial", kConfig[] = "config.json", kWhole[] = "model.safetensors",
               kIndex[] = "model.safetensors.index.json";

/// A tensor as it is written. A vector is [1, size] here and [size] in the file.
struct Exported {
  std::string name;
  std::vector<TensorSlice> from;  // side by side: of as many rows each
  bool transposed = false;        // one slice [in, out], written [out, in]
  bool vector = false;

  int64_t rows() const { return transposed ? from[0].col.size() : from[0].row.size(); }
  int64_t cols() const {
    if (transposed) return from[0].row.size();
    int64_t sum = 0;
    for (const TensorSlice& slice : from) sum += slice.col.size();
    return sum;
  }
  int64_t size() const { return rows() * cols(); }
};

TensorSlice Whole(std::string name, int64_t rows, int64_t cols) {
  return {std::move(name), rows, cols, {0, rows}, {0, cols}};
}

Exported Same(std::string name, TensorSlice from) { return {std::move(name), {std::move(from)}}; }
Exported Transposed(std::string name, TensorSlice from) { return {std::move(name), {std::move(from)}, true}; }
Exported Flat(std::string name, const std::string& from, int64_t size) {
  return {std::move(name), {Whole(from, 1, size)}, false, true};
}

std::vector<Exported> LlamaTensors(const ModelConfig& c) {
  const int64_t q = int64_t{c.a} * c.d, kv = int64_t{c.g} * c.d;
  std::vector<Exported> out;
  out.push_back(Same("model.embed_tokens.weight", Whole("wte", c.V, c.h)));
  for (int l = 0; l < c.layers; ++l) {
    const std::string here = absl::StrCat("l", l, "."), there = absl::StrCat("model.layers.", l, ".");
    out.push_back(Flat(there + "input_layernorm.weight", here + "n1.w", c.h));
    out.push_back(Transposed(there + "self_attn.q_proj.weight", Whole(here + "wq", c.h, q)));
    out.push_back(Transposed(there + "self_attn.k_proj.weight", Whole(here + "wk", c.h, kv)));
    out.push_back(Transposed(there + "self_attn.v_proj.weight", Whole(here + "wv", c.h, kv)));
    out.push_back(Transposed(there + "self_attn.o_proj.weight", Whole(here + "wo", q, c.h)));
    out.push_back(Flat(there + "post_attention_layernorm.weight", here + "n2.w", c.h));
    out.push_back(Transposed(there + "mlp.gate_proj.weight", Whole(here + "w1", c.h, c.f)));
    out.push_back(Transposed(there + "mlp.up_proj.weight", Whole(here + "w3", c.h, c.f)));
    out.push_back(Transposed(there + "mlp.down_proj.weight", Whole(here + "w2", c.f, c.h)));
  }
  out.push_back(Flat("model.norm.weight", "nf.w", c.h));
  if (!c.tied) out.push_back(Same("lm_head.weight", Whole("head", c.V, c.h)));
  return out;
}

/// Queries, keys and values of `rows` rows side by side, a head of keys and values for every head of queries.
std::vector<TensorSlice> AttentionInputs(const ModelConfig& c, const std::string& prefix, int64_t rows) {
  std::vector<TensorSlice> out = {Whole(prefix + "q", rows, int64_t{c.a} * c.d)};
  for (const char* leaf : {"k", "v"}) {
    const TensorSlice all = Whole(prefix + leaf, rows, int64_t{c.g} * c.d);
    if (c.g == c.a) {
      out.push_back(all);
      continue;
    }
    for (int head = 0; head < c.a; ++head) {
      TensorSlice one = all;
      one.col.begin = int64_t{head / (c.a / c.g)} * c.d;
      one.col.end = one.col.begin + c.d;
      out.push_back(one);
    }
  }
  return out;
}

std::vector<Exported> Gpt2Tensors(const ModelConfig& c) {
  std::vector<Exported> out;
  out.push_back(Same("transformer.wte.weight", Whole("wte", c.V, c.h)));
  out.push_back(Same("transformer.wpe.weight", Whole("wpe", c.max_positions, c.h)));
  for (int l = 0; l < c.layers; ++l) {
    const std::string here = absl::StrCat("l", l, "."), there = absl::StrCat("transformer.h.", l, ".");
    out.push_back(Flat(there + "ln_1.weight", here + "n1.w", c.h));
    out.push_back(Flat(there + "ln_1.bias", here + "n1.b", c.h));
    out.push_back({there + "attn.c_attn.weight", AttentionInputs(c, here + "w", c.h)});
    out.push_back({there + "attn.c_attn.bias", AttentionInputs(c, here + "b", 1), false, true});
    out.push_back(Same(there + "attn.c_proj.weight", Whole(here + "wo", int64_t{c.a} * c.d, c.h)));
    out.push_back(Flat(there + "attn.c_proj.bias", here + "bo", c.h));
    out.push_back(Flat(there + "ln_2.weight", here + "n2.w", c.h));
    out.push_back(Flat(there + "ln_2.bias", here + "n2.b", c.h));
    out.push_back(Same(there + "mlp.c_fc.weight", Whole(here + "w1", c.h, c.f)));
    out.push_back(Flat(there + "mlp.c_fc.bias", here + "b1", c.f));
    out.push_back(Same(there + "mlp.c_proj.weight", Whole(here + "w2", c.f, c.h)));
    out.push_back(Flat(there + "mlp.c_proj.bias", here + "b2", c.h));
  }
  out.push_back(Flat("transformer.ln_f.weight", "nf.w", c.h));
  out.push_back(Flat("transformer.ln_f.bias", "nf.b", c.h));
  if (!c.tied) out.push_back(Same("lm_head.weight", Whole("head", c.V, c.h)));
  return out;
}

absl::Status CheckModel(const v1::ModelSpec& model, const std::string& from) {
  const auto refused = [&](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat(from, ": ", why));
  };
  const bool gpt2 = model.family() == v1::ModelSpec::FAMILY_GPT2;
  if (!gpt2 && model.family() != v1::ModelSpec::FAMILY_LLAMA)
    return refused("model.family: expected gpt2 or llama; another version of metp wrote it");
  for (const int64_t size : {model.layers(), model.hidden(), model.heads(), model.kv_heads(),
                             model.head_dim(), model.ffn(), model.vocab()}) {
    if (size < 1) return refused("the job in its manifest does not give all sizes of the model");
  }
  if (!model.causal()) {
    return refused(
        "model.causal: found false, expected true: transformers has no class for a gpt2 or llama whose "
        "tokens see those after them");
  }
  if (const int64_t width = int64_t{model.heads()} * model.head_dim(); gpt2 && width != model.hidden()) {
    return refused(absl::StrCat("model.head_dim: found ", model.head_dim(), ", and heads x head_dim is ",
                                width, "; GPT2LMHeadModel has no other than hidden (", model.hidden(), ")"));
  }
  return absl::OkStatus();
}

std::string ConfigJson(const v1::JobSpec& job, const HuggingFaceOptions& options) {
  const ModelConfig c = MakeModelConfig(job.model());
  const absl::StatusOr<Encoding> encoding = EncodingOf(job.data());
  Json config, end, begin;  // null: not known, where a missing key would stand for a number
  if (encoding.ok() && encoding->end_of_document >= 0) end = encoding->end_of_document;
  if (!job.data().document_mask()) begin = end;  // what ends a document stands before the next one
  config["architectures"].push_back(c.llama ? "LlamaForCausalLM" : "GPT2LMHeadModel");
  config["model_type"] = c.llama ? "llama" : "gpt2";
  config["vocab_size"] = c.V;
  if (c.llama) {
    config["hidden_size"] = c.h;
    config["intermediate_size"] = c.f;
    config["num_hidden_layers"] = c.layers;
    config["num_attention_heads"] = c.a;
    config["num_key_value_heads"] = c.g;
    config["head_dim"] = c.d;
    config["hidden_act"] = "silu";
    config["max_position_embeddings"] = job.data().sequence_length();
    config["rms_norm_eps"] = c.eps;
    config["rope_theta"] = c.theta;
    config["rope_scaling"] = nullptr;
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
    config["attention_dropout"] = 0.0;
  } else {
    config["n_embd"] = c.h;
    config["n_inner"] = c.f;
    config["n_layer"] = c.layers;
    config["n_head"] = c.a;
    config["n_positions"] = c.max_positions;
    config["activation_function"] = "gelu_new";
    config["layer_norm_epsilon"] = c.eps;
    config["scale_attn_weights"] = true;
    config["scale_attn_by_inverse_layer_idx"] = false;
    for (const char* place : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[place] = 0.0;
  }
  config["initializer_range"] = 0.02;
  config["tie_word_embeddings"] = c.tied;
  config["bos_token_id"] = begin;
  config["eos_token_id"] = end;
  config["torch_dtype"] = options.type == ExportType::kBF16 ? "bfloat16" : "float32";
  config["use_cache"] = true;
  return config.dump(2) + "\n";
}

// ---- files ----

int64_t BytesOf(ExportType type) { return type == ExportType::kBF16 ? 2 : 4; }

struct PartFile {
  std::string name;
  std::vector<const Exported*> tensors;
};

/// In order, as many tensors in each file as `part_bytes` allows.
std::vector<PartFile> Parts(const std::vector<Exported>& tensors, const HuggingFaceOptions& options) {
  std::vector<PartFile> parts;
  int64_t bytes = 0;
  for (const Exported& tensor : tensors) {
    const int64_t more = tensor.size() * BytesOf(options.type);
    if (parts.empty() || bytes + more > options.part_bytes) {
      parts.emplace_back();
      bytes = 0;
    }
    bytes += more;
    parts.back().tensors.push_back(&tensor);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].name =
        parts.size() == 1 ? kWhole : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, parts.size());
  }
  return parts;
}

/// The header of a safetensors file, padded so that the values are aligned.
std::string HeaderOf(const PartFile& part, ExportType type) {
  Json header;
  header["__metadata__"]["format"] = "pt";
  int64_t at = 0;
  for (const Exported* tensor : part.tensors) {
    const int64_t end = at + tensor->size() * BytesOf(type);
    Json shape = Json::array();
    if (!tensor->vector) shape.push_back(tensor->rows());
    shape.push_back(tensor->cols());
    header[tensor->name] = {{"dtype", type == ExportType::kBF16 ? "BF16" : "F32"},
                            {"shape", std::move(shape)},
                            {"data_offsets", {at, end}}};
    at = end;
  }
  return SafetensorsBeginning(header);
}

/// To nearest, ties to even; NaN stays NaN.
uint16_t NarrowToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

absl::Status AppendValues(const std::vector<float>& values, ExportType type, FileWriter& file) {
  if (type == ExportType::kF32)
    return file.Append({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  std::vector<uint16_t> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), NarrowToBf16);
  return file.Append({reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(uint16_t)});
}

/// Rows `rows` of a tensor as it is written, into `to` [rows.size(), cols()]. `scratch`: its size is of no account.
absl::Status ReadRows(const CheckpointReader& reader, const Exported& tensor, Range rows,
                      std::vector<float>& scratch, std::vector<float>& to) {
  const int64_t n = rows.size(), cols = tensor.cols();
  to.resize(static_cast<size_t>(n * cols));
  int64_t col = 0;
  for (TensorSlice slice : tensor.from) {
    Range& cut = tensor.transposed ? slice.col : slice.row;
    cut = {cut.begin + rows.begin, cut.begin + rows.end};
    if (slice.size() == n * cols && !tensor.transposed)
      return reader.Read(slice, StateKind::kMaster, to.data());
    scratch.resize(static_cast<size_t>(slice.size()));
    METP_RETURN_IF_ERROR(reader.Read(slice, StateKind::kMaster, scratch.data()));
    if (!tensor.transposed) {
      const int64_t width = slice.col.size();
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(scratch.data() + i * width, width, to.data() + i * cols + col);
      col += width;
      continue;
    }
    constexpr int64_t kTile = 16;  // rows written at once: what is read of a line is used while it is near
    for (int64_t first = 0; first < n; first += kTile) {
      const int64_t last = std::min(n, first + kTile);
      for (int64_t i = 0; i < cols; ++i) {
        for (int64_t j = first; j < last; ++j) to[j * cols + i] = scratch[i * n + j];
      }
    }
  }
  return absl::OkStatus();
}

absl::Status WriteText(FileSystem& files, const std::string& path, const std::string& text) {
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, files.Create(path));
  METP_RETURN_IF_ERROR(file->Append(text));
  return file->Sync();
}

absl::Status WritePart(FileSystem& files, const std::string& folder, const CheckpointReader& reader,
                       const PartFile& part, const HuggingFaceOptions& options) {
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, files.Create(folder + "/" + part.name));
  METP_RETURN_IF_ERROR(file->Append(HeaderOf(part, options.type)));
  std::vector<float> values, scratch;
  for (const Exported* tensor : part.tensors) {
    const int64_t step = std::max<int64_t>(1, options.held_elements / std::max<int64_t>(1, tensor->cols()));
    for (int64_t row = 0; row < tensor->rows(); row += step) {
      METP_RETURN_IF_ERROR(
          ReadRows(reader, *tensor, {row, std::min(tensor->rows(), row + step)}, scratch, values));
      METP_RETURN_IF_ERROR(AppendValues(values, options.type, *file));
    }
  }
  return file->Sync();
}

std::string IndexJson(const std::vector<PartFile>& parts, int64_t bytes) {
  Json index;
  index["metadata"]["total_size"] = bytes;
  for (const PartFile& part : parts) {
    for (const Exported* tensor : part.tensors) index["weight_map"][tensor->name] = part.name;
  }
  return index.dump(2) + "\n";
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Whether a folder is there; it must be empty then.
absl::StatusOr<bool> IsThereAndEmpty(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  if (absl::IsNotFound(names.status())) return false;
  METP_RETURN_IF_ERROR(names.status());
  if (names->empty()) return true;
  return absl::AlreadyExistsError(
      absl::StrCat(folder, ": it holds ", names->front(), ", expected an empty folder, or none"));
}

/// Removes what an export that was cut short has left, and nothing else.
absl::Status ClearPartial(FileSystem& files, const std::string& partial) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(partial);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  METP_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const bool ours = name == kConfig || name == kIndex ||
                      (absl::StartsWith(name, "model") && absl::EndsWith(name, ".safetensors"));
    if (!ours) {
      return absl::AlreadyExistsError(absl::StrCat(
          partial, ": it holds ", name, ", which no export wrote; expected to have this name free"));
    }
  }
  return files.Remove(partial);
}

/// Makes `partial` the folder `to`.
absl::Status Publish(FileSystem& files, const std::string& partial, const std::string& to) {
  METP_ASSIGN_OR_RETURN(const bool there, IsThereAndEmpty(files, to));
  if (there) METP_RETURN_IF_ERROR(files.Remove(to));
  METP_RETURN_IF_ERROR(files.Rename(partial, to));
  const absl::Status synced = files.SyncFolder(ParentOf(to));
  if (!synced.ok()) files.Remove(to).IgnoreError();
  return synced;
}

}  // namespace

absl::StatusOr<HuggingFaceExport> ExportHuggingFace(FileSystem& files, const std::string& from,
                                                    const std::string& to_given,
                                                    const HuggingFaceOptions& options) {
  std::string to = to_given;
  while (to.size() > 1 && to.back() == '/') to.pop_back();
  if (to.empty()) return absl::InvalidArgumentError("found no name of a folder to export to");
  METP_RETURN_IF_ERROR(IsThereAndEmpty(files, to).status());

  METP_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader, CheckpointReader::Open(files, from));
  METP_ASSIGN_OR_RETURN(const v1::JobSpec job, reader->Job());
  METP_RETURN_IF_ERROR(CheckModel(job.model(), from));
  const ModelConfig config = MakeModelConfig(job.model());
  const std::vector<Exported> tensors = config.llama ? LlamaTensors(config) : Gpt2Tensors(config);
  std::vector<TensorSlice> slices;
  HuggingFaceExport result;
  result.step = reader->step();
  for (const Exported& tensor : tensors) {
    slices.insert(slices.end(), tensor.from.begin(), tensor.from.end());
    result.parameters += tensor.size();
  }
  METP_RETURN_IF_ERROR(reader->Check(slices, /*all_names=*/true));
  const std::vector<PartFile> parts = Parts(tensors, options);
  result.bytes = result.parameters * BytesOf(options.type);
  result.parts = static_cast<int>(parts.size());

  const std::string partial = to + kPartial;
  METP_RETURN_IF_ERROR(ClearPartial(files, partial));
  const auto write = [&]() -> absl::Status {
    METP_RETURN_IF_ERROR(files.MakeFolder(partial));
    for (const PartFile& part : parts)
      METP_RETURN_IF_ERROR(WritePart(files, partial, *reader, part, options));
    if (parts.size() > 1)
      METP_RETURN_IF_ERROR(WriteText(files, partial + "/" + kIndex, IndexJson(parts, result.bytes)));
    METP_RETURN_IF_ERROR(WriteText(files, partial + "/" + kConfig, ConfigJson(job, options)));
    METP_RETURN_IF_ERROR(files.SyncFolder(partial));
    return Publish(files, partial, to);
  };
  if (const absl::Status written = write(); !written.ok()) {
    files.Remove(partial).IgnoreError();
    // NotFound is for what was to be read.
    return absl::IsNotFound(written) ? absl::UnavailableError(written.message()) : written;
  }
  return result;
}

}  // namespace metp
