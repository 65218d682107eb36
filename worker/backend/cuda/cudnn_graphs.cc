#include "worker/backend/cuda/cudnn_graphs.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks for cuDNN's functions
}

namespace metp::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;

/// [1, heads, rows, head_dim] over rows of `stride` elements, in which heads lie side by side.
std::vector<int64_t> Dims(int heads, int64_t rows, int head_dim) { return {1, heads, rows, head_dim}; }
std::vector<int64_t> Strides(int64_t rows, int head_dim, int64_t stride) {
  return {rows * stride, head_dim, stride, 1};
}

std::shared_ptr<Tensor_attributes> Input(Graph& graph, CudnnTensor uid, int heads, int64_t rows, int head_dim,
                                         int64_t stride) {
  return graph.tensor(Tensor_attributes()
                          .set_uid(uid)
                          .set_dim(Dims(heads, rows, head_dim))
                          .set_stride(Strides(rows, head_dim, stride)));
}

void SetDenseOutput(Tensor_attributes& out, CudnnTensor uid, int heads, int64_t rows, int head_dim) {
  out.set_output(true)
      .set_uid(uid)
      .set_dim(Dims(heads, rows, head_dim))
      .set_stride(Strides(rows, head_dim, int64_t{heads} * head_dim));
}

/// lse [heads, rows], fp32.
void DescribeLse(Tensor_attributes& lse, const FusedBlock& x) {
  lse.set_uid(kLse)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({1, x.heads, x.nq, 1})
      .set_stride({x.heads * x.nq, x.nq, 1, 1});
}

void SetTypes(Graph& graph) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

struct Operands {
  std::shared_ptr<Tensor_attributes> q, k, v;
  Operands(Graph& graph, const FusedBlock& x)
      : q(Input(graph, kQ, x.heads, x.nq, x.head_dim, x.q_stride)),
        k(Input(graph, kK, x.kv_heads, x.nk, x.head_dim, x.k_stride)),
        v(Input(graph, kV, x.kv_heads, x.nk, x.head_dim, x.v_stride)) {}
};

}  // namespace

// The frontend opens a CUDA runtime of its own, and throws where it finds none: looked for here, of this build's version.
absl::Status LoadCudnn() {
  static const std::string failure = []() -> std::string {
    constexpr char kRuntime[] = "CUDNN_FRONTEND_CUDART_LIB_NAME";
    setenv(kRuntime, "libcudart.so.13", 0);
    if (dlopen(getenv(kRuntime), RTLD_NOW) == nullptr) return dlerror();
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
    return fe::cudnn_dlhandle != nullptr ? "" : dlerror();
  }();
  return failure.empty() ? absl::OkStatus() : absl::FailedPreconditionError(failure);
}

void DescribeForward(const FusedBlock& x, Graph& graph) {
  SetTypes(graph);
  const Operands in(graph, x);
  auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(x.scale);
  if (x.diagonal) options.set_causal_mask(true);
  const auto [o, lse] = graph.sdpa(in.q, in.k, in.v, options);
  SetDenseOutput(*o, kO, x.heads, x.nq, x.head_dim);
  DescribeLse(*lse, x);
  lse->set_output(true);
}

void DescribeBackward(const FusedBlock& x, Graph& graph) {
  SetTypes(graph);
  const Operands in(graph, x);
  const auto o = Input(graph, kO, x.heads, x.nq, x.head_dim, x.o_stride);
  const auto d_o = Input(graph, kDo, x.heads, x.nq, x.head_dim, x.d_o_stride);
  Tensor_attributes statistics;
  DescribeLse(statistics, x);
  const auto lse = graph.tensor(statistics);
  auto options =
      fe::graph::SDPA_backward_attributes().set_attn_scale(x.scale).set_deterministic_algorithm(true);
  if (x.diagonal) options.set_causal_mask(true);
  const auto [dq, dk, dv] = graph.sdpa_backward(in.q, in.k, in.v, o, d_o, lse, options);
  SetDenseOutput(*dq, kDq, x.heads, x.nq, x.head_dim);
  SetDenseOutput(*dk, kDk, x.kv_heads, x.nk, x.head_dim);
  SetDenseOutput(*dv, kDv, x.kv_heads, x.nk, x.head_dim);
}

absl::Status FindWays(Graph& graph, cudnnHandle_t handle) {
  return Guarded([&] {
    fe::error_t error = graph.validate();
    if (error.is_good())
      error = handle != nullptr ? graph.build_operation_graph(handle) : graph.build_operation_graph();
    if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
    if (error.is_good()) error = graph.check_support();
    return error;
  });
}

absl::Status Compile(Graph& graph) {
  return Guarded([&] { return graph.build_plans(); });
}

absl::Status Guarded(const std::function<fe::error_t()>& call) {
  try {
    fe::error_t error = call();
    if (error.is_good()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("cuDNN: ", error.get_message()));
  } catch (const std::exception& error) {  // a function or a library that the frontend did not find
    return absl::FailedPreconditionError(absl::StrCat("cuDNN: ", error.what()));
  }
}

}  // namespace metp::cuda
