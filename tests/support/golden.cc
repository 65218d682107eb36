#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

namespace metp::testing {

Golden Golden::Load(const std::string& name) {
  const char* folder = std::getenv("METP_GOLDEN");  // where the source tree is elsewhere than it was built in
  const std::string base =
      (folder != nullptr ? std::string(folder) : METP_SOURCE_DIR "/tests/golden") + "/" + name;
  Golden golden;
  golden.tensors = ReadSafetensors(base + ".safetensors");
  std::ifstream(base + ".json") >> golden.meta;
  const auto& c = golden.meta.at("config");
  ModelConfig& config = golden.config;
  config.llama = c.at("arch") == "llama";
  config.layers = c.at("layers");
  config.h = c.at("h");
  config.a = c.at("a");
  config.g = c.at("g");
  config.d = c.at("d");
  config.f = c.at("f");
  config.V = c.at("V");
  config.eps = c.at("eps");
  config.max_positions = config.llama ? 0 : c.at("s_max").get<int64_t>();
  config.tied = !config.llama;
  config.causal = c.value("causal", true);
  config.theta = c.value("theta", 10000.0);
  return golden;
}

int64_t Golden::Counted() const {
  int64_t counted = 0;
  for (double target : tensors.at("targets").values) counted += target >= 0;
  return counted;
}

std::vector<SequenceRows> Golden::Rows(int p, int rank, bool packed, int ring, int rings) const {
  const Zigzag split{s(), p};
  std::vector<SequenceRows> sequences;
  for (int i = ring; i < b(); i += rings) {
    SequenceRows& rows = sequences.emplace_back();
    const auto at = [&](const char* name, int64_t position) {
      return static_cast<int32_t>(tensors.at(name).values[i * s() + position]);
    };
    for (Range chunk : split.Chunks(rank)) {
      for (int64_t k = chunk.begin; k < chunk.end; ++k) {
        rows.ids.push_back(at("tokens", k));
        rows.targets.push_back(at("targets", k));
      }
    }
    rows.document_starts = {0};
    for (int64_t k = 1; packed && k < s(); ++k) {
      if (at("docs", k) != at("docs", k - 1)) rows.document_starts.push_back(k);
    }
  }
  return sequences;
}

namespace {

v1::TrainSpec TrainOf(const Golden& golden) {
  v1::TrainSpec train;
  if (!golden.meta.contains("adamw")) return train;
  const auto& adamw = golden.meta.at("adamw");
  train.add_betas(adamw.at("beta1"));
  train.add_betas(adamw.at("beta2"));
  train.set_eps(adamw.at("eps"));
  train.set_weight_decay(adamw.at("weight_decay"));
  train.set_clip_norm(adamw.at("clip"));
  return train;
}

Parameters ParametersOf(const Golden& golden, const Cut& cut, Backend& backend, const Communicator& ring,
                        const Replicas& replicas) {
  const ParameterLayout layout(golden.config, cut.p, ring.rank(), cut.c);
  return Parameters(backend, layout, {replicas.Own(layout.matrix_size()), cut.offload_optimizer});
}

}  // namespace

struct GoldenRank::Own {
  MemoryLedger ledger;
  std::unique_ptr<Backend> backend = MakeCpuBackend(1, ledger);
};

GoldenRank::GoldenRank(const Golden& golden, const Cut& cut, Communicator& communicator, Communicator* across)
    : GoldenRank(golden, cut, std::make_unique<Own>(), nullptr, communicator, across) {}

GoldenRank::GoldenRank(const Golden& golden, const Cut& cut, Backend& backend, Communicator& communicator,
                       Communicator* across)
    : GoldenRank(golden, cut, nullptr, &backend, communicator, across) {}

GoldenRank::GoldenRank(const Golden& golden, const Cut& cut, std::unique_ptr<Own> own, Backend* backend,
                       Communicator& communicator, Communicator* across)
    : golden_(golden),
      own_(std::move(own)),
      backend_(own_ == nullptr ? *backend : *own_->backend),
      ring_(backend_, communicator),
      replicas_(backend_, across),
      parameters_(ParametersOf(golden, cut, backend_, communicator, replicas_)),
      transformer_(ring_, golden.config, parameters_, {cut.tiled, cut.tile_rows, cut.recompute, cut.offload}),
      optimizer_(ring_, replicas_, parameters_, TrainOf(golden)) {
  parameters_.Import([&](const Piece& piece, int64_t i, int64_t j) {
    return static_cast<float>(golden.tensors.at("param." + piece.name).values[i * piece.cols + j]);
  });
}

GoldenRank::~GoldenRank() = default;

StepTotals GoldenRank::Gradients(bool packed) {
  Tensor loss = backend_.Allocate(1, 1, DType::kF64, MemoryCategory::kWorkspace);
  backend_.Fill(loss, 0);
  parameters_.ZeroGradients();
  const TokenRows tokens =
      MakeTokenRows(ring_, golden_.config, golden_.s(),
                    golden_.Rows(ring_.size(), ring_.rank(), packed, replicas_.rank(), replicas_.size()));
  transformer_.ForwardBackward(tokens, golden_.Counted(), loss);
  ring_.Drain(Pass::kFinish);
  return optimizer_.Reduce(loss, golden_.Counted(), false);
}

void Collect(Parameters& parameters, Parameters::What what, Tensors& into) {
  parameters.Export(what, [&](const Piece& piece, int64_t i, int64_t j, float value) {
    auto& whole = into[piece.name];
    whole.resize(piece.rows * piece.cols, std::nan(""));
    whole[i * piece.cols + j] = value;
  });
}

void ExpectEqualsGolden(const Golden& golden, const std::string& prefix, const Tensors& got) {
  int compared = 0;
  for (const auto& [name, reference] : golden.tensors) {
    if (name.rfind(prefix, 0) != 0) continue;
    const auto found = got.find(name.substr(prefix.size()));
    ASSERT_NE(found, got.end()) << name;
    ASSERT_EQ(found->second.size(), reference.values.size()) << name;
    double error = 0, most = 0;
    for (size_t i = 0; i < reference.values.size(); ++i) {
      const double difference = std::abs(found->second[i] - reference.values[i]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
      most = std::max(most, std::abs(reference.values[i]));
    }
    EXPECT_LE(error, most < 1e-12 ? 1e-6 : 2e-5 * most) << name << ", max|reference| " << most;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(got.size())) << "tensors under " << prefix;
}

std::map<std::string, double> RelativeErrors(const Golden& golden, const std::string& prefix,
                                             const Tensors& got) {
  std::map<std::string, double> errors;
  double all_error = 0, all_reference = 0;
  for (const auto& [name, reference] : golden.tensors) {
    if (name.rfind(prefix, 0) != 0) continue;
    const std::vector<double>& found = got.at(name.substr(prefix.size()));
    double error = 0, square = 0, most = 0;
    for (size_t i = 0; i < reference.values.size(); ++i) {
      const double want = reference.values[i], difference = found.at(i) - want;
      error += difference * difference;
      square += want * want;
      most = std::max(most, std::abs(want));
    }
    all_error += error;
    all_reference += square;
    if (most >= 1e-12) errors[name.substr(prefix.size())] = std::sqrt(error / square);
  }
  errors[""] = std::sqrt(all_error / all_reference);
  return errors;
}

}  // namespace metp::testing
