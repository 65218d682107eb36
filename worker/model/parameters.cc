#include "worker/model/parameters.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace metp {

namespace {

Arenas Allocate(Backend& backend, const ParameterLayout& layout, MemoryCategory category) {
  Arenas arenas;
  arenas.matrices = backend.Allocate(1, layout.matrix_size(), DType::kF32, category);
  arenas.vectors = backend.Allocate(1, layout.vector_size(), DType::kF32, category);
  return arenas;
}

bool ComputesInF32(const Backend& backend) { return backend.activation() == DType::kF32; }

void Zero(Backend& backend, const Arenas& arenas) {
  backend.Fill(arenas.matrices, 0);
  backend.Fill(arenas.vectors, 0);
}

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

Parameters::Parameters(Backend& backend, const ParameterLayout& layout)
    : backend_(backend),
      layout_(layout),
      weights_(Allocate(backend, layout,
                        ComputesInF32(backend) ? MemoryCategory::kWeights : MemoryCategory::kOptimizer)),
      gradients_(Allocate(backend, layout, MemoryCategory::kGradients)),
      first_(Allocate(backend, layout, MemoryCategory::kOptimizer)),
      second_(Allocate(backend, layout, MemoryCategory::kOptimizer)),
      compute_matrices_(
          ComputesInF32(backend)
              ? Tensor()
              : backend.Allocate(1, layout.matrix_size(), backend.activation(), MemoryCategory::kWeights)),
      weight_view_(
          layout.View(ComputesInF32(backend) ? weights_.matrices : compute_matrices_, weights_.vectors)),
      gradient_view_(layout.View(gradients_.matrices, gradients_.vectors)) {
  Zero(backend_, gradients_);
  Zero(backend_, first_);
  Zero(backend_, second_);
}

void Parameters::ZeroGradients() { Zero(backend_, gradients_); }

void Parameters::PublishWeights() {
  if (!ComputesInF32(backend_)) backend_.Copy(weights_.matrices, compute_matrices_);
}

void Parameters::Import(const std::function<float(const Piece&, int64_t, int64_t)>& value) {
  if (!backend_.holds_data()) return;
  std::vector<float> matrices(layout_.matrix_size()), vectors(layout_.vector_size());
  for (const Piece& piece : layout_.pieces()) {
    float* at = (piece.matrix ? matrices : vectors).data() + piece.offset;
    for (int64_t i = 0; i < piece.row.size(); ++i) {
      for (int64_t j = 0; j < piece.col.size(); ++j) {
        at[i * piece.row_stride + j * piece.col_stride] =
            value(piece, piece.row.begin + i, piece.col.begin + j);
      }
    }
  }
  backend_.CopyFromHost(matrices.data(), weights_.matrices);
  backend_.CopyFromHost(vectors.data(), weights_.vectors);
  PublishWeights();
}

void Parameters::Export(const Arenas& arenas,
                        const std::function<void(const Piece&, int64_t, int64_t, float)>& visit) const {
  std::vector<float> matrices(layout_.matrix_size()), vectors(layout_.vector_size());
  backend_.CopyToHost(arenas.matrices, matrices.data());
  backend_.CopyToHost(arenas.vectors, vectors.data());
  for (const Piece& piece : layout_.pieces()) {
    const float* at = (piece.matrix ? matrices : vectors).data() + piece.offset;
    for (int64_t i = 0; i < piece.row.size(); ++i) {
      for (int64_t j = 0; j < piece.col.size(); ++j) {
        visit(piece, piece.row.begin + i, piece.col.begin + j,
              at[i * piece.row_stride + j * piece.col_stride]);
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
