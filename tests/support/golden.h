#pragma once

// The golden vectors as models to run: one training set-up per (file, p, c, tile, attention), one rank at a
// time. A rank loads its own pieces of the reference's weights, runs its own rows of the reference's batch,
// and its gradients are put back together under their logical names.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/local_ranks.h"
#include "tests/support/safetensors.h"
#include "worker/comm/communicator.h"
#include "worker/model/config.h"
#include "worker/model/optimizer.h"
#include "worker/model/transformer.h"
#include "worker/telemetry/ledger.h"

namespace metp::testing {

struct Golden {
  std::map<std::string, GoldenTensor> tensors;  // param.*, grad.*, grad_packed.*, tokens, targets, docs
  nlohmann::json meta;
  ModelConfig config;

  static Golden Load(const std::string& name);
  int64_t s() const { return tensors.at("tokens").shape[1]; }
  int b() const { return static_cast<int>(tensors.at("tokens").shape[0]); }
  int64_t Counted() const;
  /// What rank `rank` of ring `ring` of `rings` has of the batch: rings take its sequences in turns.
  std::vector<SequenceRows> Rows(int p, int rank, bool packed, int ring = 0, int rings = 1) const;
};

/// How one run cuts the work.
struct Cut {
  int p = 1, c = 1;
  int64_t tile_rows = 0;
  bool tiled = false;
  Recompute recompute = Recompute::kSelective;
  bool offload = false;  // activations
  bool offload_optimizer = false;
};

/// One rank of a golden model.
class GoldenRank {
 public:
  /// On a CPU backend of its own, with one thread.
  GoldenRank(const Golden& golden, const Cut& cut, Communicator& communicator,
             Communicator* across = nullptr);
  /// On `backend`, which must outlive it.
  GoldenRank(const Golden& golden, const Cut& cut, Backend& backend, Communicator& communicator,
             Communicator* across = nullptr);

  ~GoldenRank();

  /// Forward and backward over the whole batch at once, gradients and loss summed over ranks.
  StepTotals Gradients(bool packed);
  Parameters& parameters() { return parameters_; }
  Optimizer& optimizer() { return optimizer_; }
  Ring& ring() { return ring_; }
  MemoryLedger& ledger() { return backend_.ledger(); }

 private:
  struct Own;
  GoldenRank(const Golden& golden, const Cut& cut, std::unique_ptr<Own> own, Backend* backend,
             Communicator& communicator, Communicator* across);

  const Golden& golden_;
  const std::unique_ptr<Own> own_;  // null: the backend is somebody else's
  Backend& backend_;
  Ring ring_;
  Replicas replicas_;
  Parameters parameters_;
  Transformer transformer_;
  Optimizer optimizer_;
};

/// Logical tensors put together from every rank's own elements (vectors are whole on every rank: the last one
/// stands).
using Tensors = std::map<std::string, std::vector<double>>;
void Collect(Parameters& parameters, Parameters::What what, Tensors& into);

/// Fails the current test for every tensor `prefix` + name of the golden file that differs: max|error| above
/// 2e-5 max|reference|, or 1e-6 where the reference is zero by theory (below 1e-12).
void ExpectEqualsGolden(const Golden& golden, const std::string& prefix, const Tensors& got);

/// |got - reference| / |reference| (Frobenius) of every tensor `prefix` + name whose reference is not zero by theory (below
/// 1e-12), and under "" of all of them together.
std::map<std::string, double> RelativeErrors(const Golden& golden, const std::string& prefix,
                                             const Tensors& got);

}  // namespace metp::testing
