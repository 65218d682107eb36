#include "tests/worker/checkpoint/hugging_face_forward.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>

#include "tests/support/safetensors.h"

namespace metp::testing {

namespace {

using Rows = std::vector<std::vector<double>>;  // one for each token

class Model {
 public:
  explicit Model(const std::string& folder) : tensors_(ReadSafetensors(folder + "/model.safetensors")) {
    std::ifstream(folder + "/config.json") >> config_;
  }

  /// Logits [s][V].
  Rows Forward(const std::vector<int>& tokens) const {
    const std::string name = config_.at("architectures").at(0);
    if (name == "LlamaForCausalLM") return Llama(tokens);
    if (name == "GPT2LMHeadModel") return Gpt2(tokens);
    throw std::runtime_error("no class " + name);
  }

 private:
  const GoldenTensor& Weight(const std::string& name) const { return tensors_.at(name + ".weight"); }

  /// torch.nn.Linear without bias.
  Rows Linear(const Rows& x, const std::string& name) const {
    const GoldenTensor& w = Weight(name);
    Rows y(x.size(), std::vector<double>(w.shape.at(0)));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t out = 0; out < w.shape[0]; ++out) {
        for (int64_t in = 0; in < w.shape.at(1); ++in)
          y[t][out] += x[t][in] * w.values[out * w.shape[1] + in];
      }
    }
    return y;
  }
  /// transformers' Conv1D.
  Rows Conv1D(const Rows& x, const std::string& name) const {
    const GoldenTensor& w = Weight(name);
    Rows y(x.size(), tensors_.at(name + ".bias").values);
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t out = 0; out < w.shape.at(1); ++out) {
        for (int64_t in = 0; in < w.shape[0]; ++in) y[t][out] += x[t][in] * w.values[in * w.shape[1] + out];
      }
    }
    return y;
  }
  Rows LlamaRmsNorm(Rows x, const std::string& name) const {
    for (std::vector<double>& row : x) {
      double sum = 0;
      for (double value : row) sum += value * value;
      const double scale =
          1 / std::sqrt(sum / static_cast<double>(row.size()) + config_.at("rms_norm_eps").get<double>());
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * Weight(name).values[i];
    }
    return x;
  }
  Rows LayerNorm(Rows x, const std::string& name) const {
    for (std::vector<double>& row : x) {
      double mean = 0, variance = 0;
      for (double value : row) mean += value / static_cast<double>(row.size());
      for (double value : row) variance += (value - mean) * (value - mean) / static_cast<double>(row.size());
      const double scale = 1 / std::sqrt(variance + config_.at("layer_norm_epsilon").get<double>());
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = (row[i] - mean) * scale * Weight(name).values[i] + tensors_.at(name + ".bias").values[i];
    }
    return x;
  }

  /// x cos + rotate_half(x) sin for every head, cos and sin being those of the first half, twice.
  static void Rotate(Rows& x, int64_t d, double theta) {
    for (size_t t = 0; t < x.size(); ++t) {
      const std::vector<double> old = x[t];
      for (size_t i = 0; i < old.size(); ++i) {
        const int64_t e = static_cast<int64_t>(i) % d, half = d / 2;
        const double angle = static_cast<double>(t) *
                             std::pow(theta, -2.0 * static_cast<double>(e % half) / static_cast<double>(d));
        const double turned = e < half ? -old[i + half] : old[i - half];
        x[t][i] = old[i] * std::cos(angle) + turned * std::sin(angle);
      }
    }
  }
  /// Causal, with repeat_kv.
  static Rows Attention(const Rows& q, const Rows& k, const Rows& v, int64_t a, int64_t g, int64_t d) {
    Rows out(q.size(), std::vector<double>(a * d));
    for (int64_t head = 0; head < a; ++head) {
      const int64_t at = head * d, kv = head / (a / g) * d;
      for (size_t t = 0; t < q.size(); ++t) {
        std::vector<double> scores(t + 1);
        double sum = 0;
        for (size_t u = 0; u <= t; ++u) {
          for (int64_t e = 0; e < d; ++e)
            scores[u] += q[t][at + e] * k[u][kv + e] / std::sqrt(static_cast<double>(d));
          scores[u] = std::exp(scores[u]);
          sum += scores[u];
        }
        for (size_t u = 0; u <= t; ++u) {
          for (int64_t e = 0; e < d; ++e) out[t][at + e] += scores[u] / sum * v[u][kv + e];
        }
      }
    }
    return out;
  }
  static void Add(const Rows& y, Rows& x) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }
  static std::vector<double> Row(const GoldenTensor& table, int64_t i) {
    const auto begin = table.values.begin() + i * table.cols();
    return {begin, begin + table.cols()};
  }
  std::string Head(const std::string& table) const {
    return config_.at("tie_word_embeddings").get<bool>() ? table : "lm_head";
  }

  Rows Llama(const std::vector<int>& tokens) const {
    const int64_t a = config_.at("num_attention_heads"), g = config_.at("num_key_value_heads"),
                  d = config_.at("head_dim");
    const double theta = config_.at("rope_theta");
    Rows x;
    for (int token : tokens) x.push_back(Row(Weight("model.embed_tokens"), token));
    for (int l = 0; l < config_.at("num_hidden_layers").get<int>(); ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      const Rows n = LlamaRmsNorm(x, layer + "input_layernorm");
      Rows q = Linear(n, layer + "self_attn.q_proj"), k = Linear(n, layer + "self_attn.k_proj");
      const Rows v = Linear(n, layer + "self_attn.v_proj");
      Rotate(q, d, theta);
      Rotate(k, d, theta);
      Add(Linear(Attention(q, k, v, a, g, d), layer + "self_attn.o_proj"), x);
      const Rows m = LlamaRmsNorm(x, layer + "post_attention_layernorm");
      Rows gate = Linear(m, layer + "mlp.gate_proj");
      const Rows up = Linear(m, layer + "mlp.up_proj");
      for (size_t t = 0; t < gate.size(); ++t) {
        for (size_t i = 0; i < gate[t].size(); ++i)
          gate[t][i] = gate[t][i] / (1 + std::exp(-gate[t][i])) * up[t][i];
      }
      Add(Linear(gate, layer + "mlp.down_proj"), x);
    }
    return Linear(LlamaRmsNorm(x, "model.norm"), Head("model.embed_tokens"));
  }

  Rows Gpt2(const std::vector<int>& tokens) const {
    const int64_t a = config_.at("n_head"), h = config_.at("n_embd");
    Rows x, positions;
    for (size_t t = 0; t < tokens.size(); ++t) {
      x.push_back(Row(Weight("transformer.wte"), tokens[t]));
      positions.push_back(Row(Weight("transformer.wpe"), static_cast<int64_t>(t)));
    }
    Add(positions, x);
    for (int l = 0; l < config_.at("n_layer").get<int>(); ++l) {
      const std::string layer = "transformer.h." + std::to_string(l) + ".";
      Rows parts[3];
      for (const std::vector<double>& row : Conv1D(LayerNorm(x, layer + "ln_1"), layer + "attn.c_attn")) {
        for (int64_t part = 0; part < 3; ++part)
          parts[part].emplace_back(row.begin() + part * h, row.begin() + (part + 1) * h);
      }
      Add(Conv1D(Attention(parts[0], parts[1], parts[2], a, a, h / a), layer + "attn.c_proj"), x);
      Rows m = Conv1D(LayerNorm(x, layer + "ln_2"), layer + "mlp.c_fc");
      for (std::vector<double>& row : m) {
        for (double& u : row)
          u = 0.5 * u * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (u + 0.044715 * u * u * u)));
      }
      Add(Conv1D(m, layer + "mlp.c_proj"), x);
    }
    return Linear(LayerNorm(x, "transformer.ln_f"), Head("transformer.wte"));
  }

  const std::map<std::string, GoldenTensor> tensors_;
  nlohmann::json config_;
};

}  // namespace

double HuggingFaceLoss(const std::string& folder, int sequences, const std::vector<double>& tokens,
                       const std::vector<double>& targets) {
  const Model model(folder);
  const size_t s = tokens.size() / static_cast<size_t>(sequences);
  double loss = 0;
  int64_t counted = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += s) {
    const Rows logits = model.Forward(std::vector<int>(tokens.begin() + static_cast<int64_t>(begin),
                                                       tokens.begin() + static_cast<int64_t>(begin + s)));
    for (size_t t = 0; t < s; ++t) {
      const double target = targets[begin + t];
      if (target < 0) continue;
      double sum = 0;
      for (double logit : logits[t]) sum += std::exp(logit);
      loss += std::log(sum) - logits[t][static_cast<size_t>(target)];
      ++counted;
    }
  }
  return loss / static_cast<double>(counted);
}

}  // namespace metp::testing
