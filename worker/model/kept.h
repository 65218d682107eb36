#pragma once

// What layers keep from forward to backward, and where: on the device, or, offloaded, in host memory. A stack: the
// layer kept last is taken first.
//
// Offloaded, a layer's tensors are copied out behind the layer after it and given back then; in backward they are
// copied in behind the layer above. So the device holds two layers' at most, whatever the number of layers, and
// the last layer's never leave it.

#include <cstdint>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/ring/attention.h"

namespace metp {

/// Which of them are there follows from what is recomputed (transformer.h).
struct KeptLayer {
  Tensor X;    // [n, h], what entered the layer
  Tensor O;    // [n, a d]
  Tensor LSE;  // [n, a]
  Tensor X2;   // [n, h], what attention left
  std::vector<ProjectedGroup> projections;
};

class KeptLayers {
 public:
  KeptLayers(Backend& backend, bool offload) : backend_(backend), offload_(offload) {}
  KeptLayers(const KeptLayers&) = delete;
  KeptLayers& operator=(const KeptLayers&) = delete;
  /// As Clear, but throws nothing.
  ~KeptLayers();

  void Push(KeptLayer layer, bool last);
  /// On the device and ready for the compute stream.
  KeptLayer Pop();
  /// Gives everything back, once the copies under way are done.
  void Clear();

 private:
  struct Copied {
    int64_t rows, cols;
    DType type;
    HostBlock host;
    HostTask copy;  // out, later in
  };
  struct Layer {
    KeptLayer device;
    std::vector<Copied> host;  // in the order of Tensors(); empty: never left
  };
  static std::vector<Tensor*> Tensors(KeptLayer& layer);
  void Leave(Layer& layer);
  void AwaitLeft(Layer& layer);
  void Fetch(Layer& layer);

  Backend& backend_;
  const bool offload_;
  std::vector<Layer> layers_;
};

}  // namespace metp
