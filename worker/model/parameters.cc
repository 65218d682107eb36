#include "worker/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace metp {

namespace {

HostState::Part PartOf(Parameters::What what) {
  return what == Parameters::kMasters        ? HostState::Part::kMasters
         : what == Parameters::kFirstMoments ? HostState::Part::kFirstMoments
                                             : HostState::Part::kSecondMoments;
}

bool ComputesInF32(const Backend& backend) { return backend.activation() == DType::kF32; }

/// SplitMix64's output function: a bijection that spreads every input bit (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t HashName(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (unsigned char byte : name) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

/// The standard normal number `index` of stream `key`, by Box and Muller from two hashed uniforms.
double Normal(uint64_t key, uint64_t index) {
  const uint64_t x = Mix(key ^ Mix(2 * index)), y = Mix(key ^ Mix(2 * index + 1));
  const double u = (static_cast<double>(x >> 11) + 1) * 0x1.0p-53;  // (0, 1]
  const double v = static_cast<double>(y >> 11) * 0x1.0p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

std::string Leaf(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

Parameters::Parameters(Backend& backend, const ParameterLayout& layout, const StateOptions& options)
    : backend_(backend), layout_(layout), own_(options.own.value_or(Range{0, layout.matrix_size()})) {
  constexpr MemoryCategory kOptimizer = MemoryCategory::kOptimizer;
  const auto allocate = [&](int64_t size, DType type, MemoryCategory category) {
    return backend_.Allocate(1, size, type, category);
  };
  weights_ = allocate(layout_.matrix_size(), backend_.activation(), MemoryCategory::kWeights);
  gradients_ = allocate(layout_.matrix_size(), DType::kF32, MemoryCategory::kGradients);
  for (const What what : {kMasters, kGradients, kFirstMoments, kSecondMoments}) {
    const MemoryCategory category = what == kMasters     ? MemoryCategory::kWeights
                                    : what == kGradients ? MemoryCategory::kGradients
                                                         : kOptimizer;
    vectors_[what] = allocate(layout_.vector_size(), DType::kF32, category);
    backend_.Fill(vectors_[what], 0);
  }
  if (options.on_host) {
    host_.emplace(backend_, own_.size());
  } else {
    if (!ComputesInF32(backend_)) state_[kMasters] = allocate(own_.size(), DType::kF32, kOptimizer);
    for (const What what : {kFirstMoments, kSecondMoments}) {
      state_[what] = allocate(own_.size(), DType::kF32, kOptimizer);
      backend_.Fill(state_[what], 0);
    }
  }
  weight_view_ = layout_.View(weights_, vectors_[kMasters]);
  gradient_view_ = layout_.View(gradients_, vectors_[kGradients]);
  ZeroGradients();
}

void Parameters::ZeroGradients() {
  backend_.Fill(gradients_, 0);
  backend_.Fill(vectors_[kGradients], 0);
}

void Parameters::Update(const AdamWStep& matrices, const AdamWStep& vectors) {
  const Matrix weights = Own(weights_), gradients = Own(gradients_);
  if (host_) {
    host_->Update(matrices, gradients, weights);
  } else if (ComputesInF32(backend_)) {
    backend_.AdamW(matrices, gradients, state_[kFirstMoments], state_[kSecondMoments], weights);
  } else {
    backend_.AdamW(matrices, gradients, state_[kFirstMoments], state_[kSecondMoments], state_[kMasters]);
    backend_.Copy(state_[kMasters], weights);
  }
  backend_.AdamW(vectors, vectors_[kGradients], vectors_[kFirstMoments], vectors_[kSecondMoments],
                 vectors_[kMasters]);
}

void Parameters::Import(const std::function<float(const Piece&, int64_t, int64_t)>& value) {
  if (!backend_.holds_data()) return;
  Copy whole{std::vector<float>(layout_.matrix_size()), std::vector<float>(layout_.vector_size())};
  for (const Piece& piece : layout_.pieces()) {
    float* at = (piece.matrix ? whole.matrices : whole.vectors).data() + piece.offset;
    for (int64_t i = 0; i < piece.row.size(); ++i) {
      for (int64_t j = 0; j < piece.col.size(); ++j) {
        at[i * piece.row_stride + j * piece.col_stride] =
            value(piece, piece.row.begin + i, piece.col.begin + j);
      }
    }
  }
  SetMasters(whole);
}

void Parameters::SetMasters(const Copy& whole) {
  if (!backend_.holds_data()) return;
  backend_.CopyFromHost(whole.vectors.data(), vectors_[kMasters]);
  ImportMatrices(whole.matrices.data());
}

void Parameters::SetMoments(What what, const Copy& own) {
  if (!backend_.holds_data()) return;
  backend_.CopyFromHost(own.vectors.data(), vectors_[what]);
  if (host_) {
    host_->Import(PartOf(what), own.matrices.data());
  } else {
    backend_.CopyFromHost(own.matrices.data(), state_[what]);
  }
}

void Parameters::ImportMatrices(const float* values) {
  if (ComputesInF32(backend_)) {
    backend_.CopyFromHost(values, weights_);
  } else {
    for (int64_t begin = 0; begin < layout_.matrix_size(); begin += HostState::kShardElements) {
      const int64_t end = std::min(begin + HostState::kShardElements, layout_.matrix_size());
      const Tensor wide = backend_.Allocate(1, end - begin, DType::kF32, MemoryCategory::kTransient);
      backend_.CopyFromHost(values + begin, wide);
      backend_.Copy(wide, weights_->Cols(begin, end));
    }
  }
  if (host_) {
    host_->Import(HostState::Part::kMasters, values + own_.begin);
  } else if (!ComputesInF32(backend_)) {
    backend_.CopyFromHost(values + own_.begin, state_[kMasters]);
  }
}

Parameters::Copy Parameters::CopyOf(What what) const {
  Copy copy{std::vector<float>(own_.size()), std::vector<float>(layout_.vector_size())};
  if (!backend_.holds_data()) return copy;
  backend_.CopyToHost(vectors_[what], copy.vectors.data());
  if (what == kGradients) {
    backend_.CopyToHost(Own(gradients_), copy.matrices.data());
  } else if (host_) {
    host_->Export(PartOf(what), copy.matrices.data());
  } else {
    const bool are_weights = what == kMasters && ComputesInF32(backend_);
    backend_.CopyToHost(are_weights ? Own(weights_) : state_[what].view(), copy.matrices.data());
  }
  return copy;
}

void Parameters::Export(What what,
                        const std::function<void(const Piece&, int64_t, int64_t, float)>& visit) const {
  const auto [matrices, vectors] = CopyOf(what);
  for (const Piece& piece : layout_.pieces()) {
    for (int64_t i = 0; i < piece.row.size(); ++i) {
      for (int64_t j = 0; j < piece.col.size(); ++j) {
        const int64_t at = piece.offset + i * piece.row_stride + j * piece.col_stride;
        if (!piece.matrix) {
          visit(piece, piece.row.begin + i, piece.col.begin + j, vectors[at]);
        } else if (own_.begin <= at && at < own_.end) {
          visit(piece, piece.row.begin + i, piece.col.begin + j, matrices[at - own_.begin]);
        }
      }
    }
  }
}

void InitializeWeights(Parameters& parameters, const ModelConfig& config, uint64_t seed) {
  const double residual = 0.02 / std::sqrt(2.0 * config.layers);
  parameters.Import([&](const Piece& piece, int64_t i, int64_t j) -> float {
    const std::string leaf = Leaf(piece.name);
    if (!piece.matrix) return leaf == "w" ? 1.0f : 0.0f;
    const double deviation = leaf == "wo" || leaf == "w2" ? residual : 0.02;
    const uint64_t key = Mix(seed ^ HashName(piece.name));
    return static_cast<float>(deviation * Normal(key, static_cast<uint64_t>(i * piece.cols + j)));
  });
}

}  // namespace metp
