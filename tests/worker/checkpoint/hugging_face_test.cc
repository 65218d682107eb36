// An exported folder has every weight where transformers looks for it, and computes what training computes.

#include "worker/checkpoint/hugging_face.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/golden.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/checkpoint/hugging_face_forward.h"
#include "tests/worker/checkpoint/written_checkpoint.h"

namespace metp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- what is expected, element by element ----

struct Wanted {
  std::vector<int64_t> shape;
  std::function<float(int64_t, int64_t)> at;  // of a vector (0, j)
};

std::map<std::string, Wanted> WantedTensors(const v1::ModelSpec& m, const Element& element) {
  const int64_t h = m.hidden(), f = m.ffn(), d = m.head_dim(), q = m.heads() * d, kv = m.kv_heads() * d;
  std::map<std::string, Wanted> all;
  const auto same = [&](const std::string& name, const std::string& here, std::vector<int64_t> shape) {
    all[name] = {std::move(shape), [=](int64_t i, int64_t j) { return element(here, i, j); }};
  };
  const auto turned = [&](const std::string& name, const std::string& here, int64_t out, int64_t in) {
    all[name] = {{out, in}, [=](int64_t i, int64_t j) { return element(here, j, i); }};
  };
  if (!m.tie_embeddings()) same("lm_head.weight", "head", {m.vocab(), h});
  const bool llama = m.family() == v1::ModelSpec::FAMILY_LLAMA;
  for (int l = 0; l < m.layers(); ++l) {
    const std::string here = absl::StrCat("l", l, ".");
    if (llama) {
      const std::string there = absl::StrCat("model.layers.", l, ".");
      turned(there + "self_attn.q_proj.weight", here + "wq", q, h);
      turned(there + "self_attn.k_proj.weight", here + "wk", kv, h);
      turned(there + "self_attn.v_proj.weight", here + "wv", kv, h);
      turned(there + "self_attn.o_proj.weight", here + "wo", h, q);
      turned(there + "mlp.gate_proj.weight", here + "w1", f, h);
      turned(there + "mlp.up_proj.weight", here + "w3", f, h);
      turned(there + "mlp.down_proj.weight", here + "w2", h, f);
      same(there + "input_layernorm.weight", here + "n1.w", {h});
      same(there + "post_attention_layernorm.weight", here + "n2.w", {h});
      continue;
    }
    const std::string there = absl::StrCat("transformer.h.", l, ".");
    // Column j of 3 h: one of q, k, v; in it a head, and of that an element.
    const int64_t shared = m.heads() / m.kv_heads();
    const auto projections = [=](const std::string& prefix) {
      return [=](int64_t i, int64_t j) {
        const int64_t head = j % h / d, from = j < h ? head : head / shared;
        return element(here + prefix + "qkv"[j / h], i, from * d + j % d);
      };
    };
    all[there + "attn.c_attn.weight"] = {{h, 3 * h}, projections("w")};
    all[there + "attn.c_attn.bias"] = {{3 * h}, projections("b")};
    same(there + "attn.c_proj.weight", here + "wo", {h, h});
    same(there + "attn.c_proj.bias", here + "bo", {h});
    same(there + "mlp.c_fc.weight", here + "w1", {h, f});
    same(there + "mlp.c_fc.bias", here + "b1", {f});
    same(there + "mlp.c_proj.weight", here + "w2", {f, h});
    same(there + "mlp.c_proj.bias", here + "b2", {h});
    for (int n : {1, 2}) {
      same(absl::StrCat(there, "ln_", n, ".weight"), absl::StrCat(here, "n", n, ".w"), {h});
      same(absl::StrCat(there, "ln_", n, ".bias"), absl::StrCat(here, "n", n, ".b"), {h});
    }
  }
  if (llama) {
    same("model.embed_tokens.weight", "wte", {m.vocab(), h});
    same("model.norm.weight", "nf.w", {h});
  } else {
    same("transformer.wte.weight", "wte", {m.vocab(), h});
    same("transformer.wpe.weight", "wpe", {m.max_positions(), h});
    same("transformer.ln_f.weight", "nf.w", {h});
    same("transformer.ln_f.bias", "nf.b", {h});
  }
  return all;
}

void ExpectTensors(const std::map<std::string, GoldenTensor>& found,
                   const std::map<std::string, Wanted>& wanted) {
  for (const auto& [name, want] : wanted) {
    const auto at = found.find(name);
    ASSERT_NE(at, found.end()) << name;
    ASSERT_EQ(at->second.shape, want.shape) << name;
    const int64_t rows = at->second.rows(), cols = at->second.cols();
    ASSERT_EQ(static_cast<int64_t>(at->second.values.size()), rows * cols) << name;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j)
        ASSERT_EQ(at->second.values[i * cols + j], want.at(i, j)) << name << " " << i << " " << j;
    }
  }
  EXPECT_EQ(found.size(), wanted.size());
}

nlohmann::json JsonOf(const std::string& path) {
  nlohmann::json json;
  std::ifstream(path) >> json;
  return json;
}

class HuggingFaceTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  /// Writes a checkpoint on the real disk and exports it to `out`.
  absl::StatusOr<HuggingFaceExport> Export(const v1::JobSpec& job, const HuggingFaceOptions& options = {},
                                           const Element& element = Value) {
    const std::string directory = Path("checkpoints");
    std::filesystem::remove_all(directory);
    std::filesystem::remove_all(Path("out"));
    const absl::Status written = WriteCheckpoint(RealFileSystem(), directory, job, 1, 1, element);
    if (!written.ok()) return written;
    return ExportHuggingFace(RealFileSystem(), CheckpointFolder(directory, kStep), Path("out"), options);
  }
  nlohmann::json Config(const v1::JobSpec& job, const HuggingFaceOptions& options = {}) {
    EXPECT_THAT(Export(job, options), IsOk());
    return JsonOf(Path("out/config.json"));
  }
  void ExpectExport(const v1::JobSpec& job, int p, int rings) {
    SCOPED_TRACE(::testing::Message() << p << " ranks, " << rings << " rings");
    const std::string directory = Path(absl::StrCat("checkpoints-", p, "-", rings)), to = directory + "-out";
    ASSERT_THAT(WriteCheckpoint(RealFileSystem(), directory, job, p, rings), IsOk());
    const auto done = ExportHuggingFace(RealFileSystem(), CheckpointFolder(directory, kStep), to);
    ASSERT_THAT(done, IsOk());
    EXPECT_EQ(done->step, kStep);
    EXPECT_EQ(done->bytes, 4 * done->parameters);
    EXPECT_THAT(*RealFileSystem().List(to), ElementsAre("config.json", "model.safetensors"));
    const auto found = ReadSafetensors(to + "/model.safetensors");
    int64_t parameters = 0;
    for (const auto& [name, tensor] : found) parameters += static_cast<int64_t>(tensor.values.size());
    EXPECT_EQ(done->parameters, parameters);
    ExpectTensors(found, WantedTensors(job.model(), Value));
    std::filesystem::remove_all(directory);
    std::filesystem::remove_all(to);
  }
  TempFolder folder_;
};

TEST_F(HuggingFaceTest, LlamaOfAnyRanksHasItsWeightsWhereTransformersLooks) {
  for (const auto& [p, rings] : {std::pair{1, 1}, {3, 1}, {2, 3}}) ExpectExport(LlamaJob(), p, rings);
  ExpectExport(LlamaJob({"model.tie_embeddings=true"}), 2, 1);
  ExpectExport(LlamaJob({"model.kv_heads=6"}), 2, 1);
}

TEST_F(HuggingFaceTest, Gpt2OfAnyRanksHasItsWeightsWhereTransformersLooks) {
  for (const auto& [p, rings] : {std::pair{1, 1}, {3, 1}, {2, 3}}) ExpectExport(Gpt2Job(), p, rings);
  ExpectExport(Gpt2Job({"model.tie_embeddings=false"}), 2, 1);
  ExpectExport(Gpt2Job({"model.kv_heads=2"}), 2, 1);  // keys and values that heads share, written for each
}

v1::JobSpec GoldenJob(const std::string& name, const ModelConfig& c) {
  const std::string model =
      absl::StrCat("family: ", c.llama ? "llama" : "gpt2", ", layers: ", c.layers, ", hidden: ", c.h,
                   ", heads: ", c.a, ", kv_heads: ", c.g, ", head_dim: ", c.d, ", ffn: ", c.f,
                   ", vocab: ", c.V, ", max_positions: 64, norm_eps: ", c.eps, ", rope_theta: ", c.theta);
  return PlannedJob(model, 48, {"data.source=" + name + ".bin"});
}

TEST_F(HuggingFaceTest, ComputesTheLossThatTheReferenceComputes) {
  for (const char* name : {"llama", "gpt2", "llama_d64"}) {
    SCOPED_TRACE(name);
    const Golden golden = Golden::Load(name);
    const absl::Status exported =
        Export(GoldenJob(name, golden.config), {}, [&](const std::string& tensor, int64_t i, int64_t j) {
          const GoldenTensor& values = golden.tensors.at("param." + tensor);
          return static_cast<float>(values.values[i * values.cols() + j]);
        }).status();
    ASSERT_THAT(exported, IsOk());
    const double loss = HuggingFaceLoss(Path("out"), golden.b(), golden.tensors.at("tokens").values,
                                        golden.tensors.at("targets").values);
    EXPECT_NEAR(loss, golden.meta.at("loss").get<double>(), 1e-9);  // both in double, from the same floats
  }
}

/// A rank's masters after training, as it would save them.
ElementSource MastersOf(Parameters& parameters, bool vectors) {
  const auto values = std::make_shared<Tensors>();
  Collect(parameters, Parameters::kMasters, *values);
  std::map<std::string, int64_t> cols;
  for (const Piece& piece : parameters.layout().pieces()) cols[piece.name] = piece.cols;
  return ElementSource(SlicesOf(parameters.layout(), parameters.own(), vectors),
                       [=](const std::string& name, int64_t i, int64_t j) {
                         return static_cast<float>(values->at(name).at(i * cols.at(name) + j));
                       });
}

TEST_F(HuggingFaceTest, WhatSeveralRingsHaveTrainedIsWhatIsExported) {
  constexpr int kRanks = 3, kRings = 2;
  for (const char* name : {"llama", "gpt2"}) {
    SCOPED_TRACE(name);
    const Golden golden = Golden::Load(name);
    const v1::JobSpec job = GoldenJob(name, golden.config);
    const std::string directory = Path(name), partial = PartialFolder(directory, kStep, kRun);
    FileSystem& files = RealFileSystem();
    ASSERT_THAT(ClaimCheckpoints(files, directory, kRun), IsOk());
    ASSERT_THAT(files.MakeFolder(partial), IsOk());
    std::mutex mutex;
    Tensors masters;
    RunLocalRings(kRanks, kRings, [&](int rank, Communicator& ring, Communicator* across) {
      GoldenRank model(golden, {kRanks, 2, 0, false}, ring, across);
      model.optimizer().Apply(model.Gradients(false), 1, 1e-2);
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_THAT(WriteShard(files, partial, rank, kRanks * kRings, MastersOf(model.parameters(), rank == 0)),
                  IsOk());
      Collect(model.parameters(), Parameters::kMasters, masters);
    });
    ASSERT_THAT(CommitCheckpoint(files, directory, kStep, kRun, kRanks * kRings, {}, job, v1::Plan()),
                IsOk());
    ASSERT_THAT(ExportHuggingFace(files, CheckpointFolder(directory, kStep), directory + "-out"), IsOk());
    const Element element = [&](const std::string& tensor, int64_t i, int64_t j) {
      const int64_t cols = golden.tensors.at("param." + tensor).cols();
      return static_cast<float>(masters.at(tensor)[static_cast<size_t>(i * cols + j)]);
    };
    ExpectTensors(ReadSafetensors(directory + "-out/model.safetensors"), WantedTensors(job.model(), element));
    EXPECT_NE(masters.at("wte"), golden.tensors.at("param.wte").values);  // it has been trained
  }
}

TEST_F(HuggingFaceTest, ConfigTellsAllSizes) {
  const nlohmann::json llama = Config(LlamaJob());
  const nlohmann::json expected = {{"architectures", nlohmann::json::array({"LlamaForCausalLM"})},
                                   {"model_type", "llama"},
                                   {"vocab_size", 257},
                                   {"hidden_size", 20},
                                   {"intermediate_size", 30},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 6},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 4},
                                   {"hidden_act", "silu"},
                                   {"max_position_embeddings", 16},
                                   {"rms_norm_eps", 1e-6},
                                   {"rope_theta", 5000.0},
                                   {"attention_bias", false},
                                   {"mlp_bias", false},
                                   {"tie_word_embeddings", false},
                                   {"torch_dtype", "float32"},
                                   {"bos_token_id", 256},
                                   {"eos_token_id", 256}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(llama.at(key), value) << key;

  HuggingFaceOptions narrow;
  narrow.type = ExportType::kBF16;
  const nlohmann::json gpt2 = Config(Gpt2Job(), narrow);
  const nlohmann::json other = {{"architectures", nlohmann::json::array({"GPT2LMHeadModel"})},
                                {"model_type", "gpt2"},
                                {"vocab_size", 260},
                                {"n_embd", 24},
                                {"n_inner", 40},
                                {"n_layer", 2},
                                {"n_head", 6},
                                {"n_positions", 32},
                                {"activation_function", "gelu_new"},
                                {"layer_norm_epsilon", 1e-5},
                                {"tie_word_embeddings", true},
                                {"torch_dtype", "bfloat16"}};
  for (const auto& [key, value] : other.items()) EXPECT_EQ(gpt2.at(key), value) << key;
  EXPECT_EQ(Config(Gpt2Job({"model.tie_embeddings=false"})).at("tie_word_embeddings"), false);
  EXPECT_EQ(Config(LlamaJob({"model.tie_embeddings=true"})).at("tie_word_embeddings"), true);
}

TEST_F(HuggingFaceTest, ConfigLeavesTokensOpenThatAreNotKnown) {
  const nlohmann::json none = Config(LlamaJob({"data.source=x.bin", "model.vocab=300"}));
  EXPECT_TRUE(none.at("bos_token_id").is_null());
  EXPECT_TRUE(none.at("eos_token_id").is_null());
  // Where documents do not see each other, nothing stands before one.
  const nlohmann::json masked = Config(LlamaJob({"data.document_mask=true"}));
  EXPECT_TRUE(masked.at("bos_token_id").is_null());
  EXPECT_EQ(masked.at("eos_token_id"), 256);
}

TEST_F(HuggingFaceTest, Bf16IsTheNearestWithTiesToEven) {
  const std::vector<std::pair<float, double>> cases = {{1.0f, 1},
                                                       {1 + 0x1p-8f, 1},             // a tie: down to even
                                                       {1 + 0x1.8p-7f, 1 + 0x1p-6},  // a tie: up to even
                                                       {1 + 0x1p-8f + 0x1p-23f, 1 + 0x1p-7},  // above the tie
                                                       {1 + 0x1p-8f - 0x1p-23f, 1},
                                                       {-1 - 0x1.8p-7f, -1 - 0x1p-6},
                                                       {-0.0f, 0},
                                                       {0x1p-133f, 0x1p-133},  // the least subnormal one
                                                       {0x1.8p-134f, 0x1p-133},
                                                       {std::numeric_limits<float>::max(), INFINITY},
                                                       {-INFINITY, -INFINITY}};
  HuggingFaceOptions options;
  options.type = ExportType::kBF16;
  const auto done = Export(LlamaJob(), options, [&](const std::string& name, int64_t i, int64_t j) {
    if (name != "wte" || i > 0) return Value(name, i, j);
    // A NaN whose upper half alone would be an infinity, last.
    return j < static_cast<int64_t>(cases.size()) ? cases[j].first : std::bit_cast<float>(0x7f800001u);
  });
  ASSERT_THAT(done, IsOk());
  EXPECT_EQ(done->bytes, 2 * done->parameters);
  const auto found = ReadSafetensors(Path("out/model.safetensors"));
  const std::vector<double>& table = found.at("model.embed_tokens.weight").values;
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(table[i], cases[i].second) << i;
  EXPECT_TRUE(std::isnan(table[cases.size()]));
  for (const auto& [name, want] : WantedTensors(LlamaJob().model(), Value)) {
    const GoldenTensor& tensor = found.at(name);
    for (int64_t k = name == "model.embed_tokens.weight" ? 20 : 0; k < tensor.rows() * tensor.cols(); ++k) {
      const float exact = want.at(k / tensor.cols(), k % tensor.cols());
      const float below = std::bit_cast<float>(std::bit_cast<uint32_t>(exact) & 0xffff0000u);  // towards 0
      const float above = std::bit_cast<float>((std::bit_cast<uint32_t>(exact) & 0xffff0000u) + 0x10000u);
      const double down = std::abs(double{exact} - below), up = std::abs(double{exact} - above);
      const bool even = (std::bit_cast<uint32_t>(below) >> 16) % 2 == 0;
      ASSERT_EQ(tensor.values[k], down < up || (down == up && even) ? below : above) << name << " " << k;
    }
  }
}

TEST_F(HuggingFaceTest, LargeModelsAreSeveralFilesWithAnIndex) {
  HuggingFaceOptions options;
  options.part_bytes = 10'000;  // the token table alone is larger
  options.held_elements = 50;   // two or three rows at a time
  const auto done = Export(LlamaJob(), options);
  ASSERT_THAT(done, IsOk());
  ASSERT_GT(done->parts, 3);
  const nlohmann::json index = JsonOf(Path("out/model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), done->bytes);
  std::map<std::string, GoldenTensor> all;
  for (int part = 1; part <= done->parts; ++part) {
    const std::string name = absl::StrFormat("model-%05d-of-%05d.safetensors", part, done->parts);
    int64_t bytes = 0;
    const auto tensors = ReadSafetensors(Path("out/" + name));
    for (const auto& [tensor, values] : tensors) {
      EXPECT_EQ(index.at("weight_map").at(tensor), name);
      bytes += static_cast<int64_t>(4 * values.values.size());
      all[tensor] = values;
    }
    EXPECT_TRUE(bytes <= options.part_bytes || tensors.size() == 1) << name;
  }
  EXPECT_EQ(index.at("weight_map").size(), all.size());
  ExpectTensors(all, WantedTensors(LlamaJob().model(), Value));
  EXPECT_FALSE(std::filesystem::exists(Path("out/model.safetensors")));
}

TEST_F(HuggingFaceTest, AFolderThatCannotBeMadeIsSaidSo) {
  ASSERT_THAT(Export(LlamaJob()), IsOk());
  const std::string from = CheckpointFolder(Path("checkpoints"), kStep);
  EXPECT_THAT(ExportHuggingFace(RealFileSystem(), from, "/proc/metp-export/out"),  // nobody can make it
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/proc/metp-export/out.partial")));
}

TEST_F(HuggingFaceTest, FilesAreWellFormed) {
  ASSERT_THAT(Export(Gpt2Job()), IsOk());
  std::ifstream file(Path("out/model.safetensors"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, size));
  EXPECT_EQ(header.at("__metadata__").dump(), R"({"format":"pt"})");
  size_t end = 0;  // no gaps, in order
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(tensor.at("dtype"), "F32");
    EXPECT_EQ(tensor.at("data_offsets").at(0), end) << name;
    end = tensor.at("data_offsets").at(1);
  }
  EXPECT_EQ(8 + size + end, bytes.size());
}

}  // namespace
}  // namespace metp::testing
