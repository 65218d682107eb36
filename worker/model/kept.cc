#include "worker/model/kept.h"

#include "worker/backend/host_link.h"
#include "worker/backend/step_error.h"

namespace metp {

std::vector<Tensor*> KeptLayers::Tensors(KeptLayer& layer) {
  std::vector<Tensor*> tensors = {&layer.X, &layer.O, &layer.LSE, &layer.X2};
  for (ProjectedGroup& group : layer.projections) tensors.insert(tensors.end(), {&group.q, &group.kv});
  return tensors;
}

KeptLayers::~KeptLayers() {
  try {
    Clear();
  } catch (const StepError&) {
    // A broken device: the error is on its way already, or comes out of the next call.
  }
}

void KeptLayers::Clear() {
  for (const Layer& layer : layers_) {
    for (const Copied& copied : layer.host) backend_.host_link().Await(copied.copy);
  }
  layers_.clear();
}

void KeptLayers::Push(KeptLayer layer, bool last) {
  if (offload_ && !layers_.empty()) AwaitLeft(layers_.back());
  layers_.push_back({std::move(layer), {}});
  if (offload_ && !last) Leave(layers_.back());
}

KeptLayer KeptLayers::Pop() {
  Layer layer = std::move(layers_.back());
  layers_.pop_back();
  for (const Copied& copied : layer.host) backend_.host_link().Await(copied.copy);
  if (offload_ && !layers_.empty()) Fetch(layers_.back());
  return std::move(layer.device);
}

void KeptLayers::Leave(Layer& layer) {
  HostLink& link = backend_.host_link();
  const Event after = backend_.Record();
  for (Tensor* tensor : Tensors(layer.device)) {
    const Matrix& x = tensor->view();
    HostBlock block = link.Allocate(x.bytes(), MemoryCategory::kActivations);
    const HostTask copy = link.CopyOut(x, block, after);
    layer.host.push_back({x.rows, x.cols, x.type, std::move(block), copy});
  }
}

void KeptLayers::AwaitLeft(Layer& layer) {
  const std::vector<Tensor*> tensors = Tensors(layer.device);
  for (size_t i = 0; i < layer.host.size(); ++i) {
    backend_.host_link().Await(layer.host[i].copy);
    tensors[i]->Reset();
  }
}

void KeptLayers::Fetch(Layer& layer) {
  const std::vector<Tensor*> tensors = Tensors(layer.device);
  for (size_t i = 0; i < layer.host.size(); ++i) {
    Copied& copied = layer.host[i];
    *tensors[i] = backend_.Allocate(copied.rows, copied.cols, copied.type, MemoryCategory::kActivations);
    copied.copy = backend_.host_link().CopyIn(copied.host, tensors[i]->view(), backend_.Record());
  }
}

}  // namespace metp
