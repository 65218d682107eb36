#pragma once

// The graphs behind CudnnAttention, and the library that they are for.

#include <cudnn_frontend.h>

#include <functional>

#include "absl/status/status.h"
#include "worker/backend/cuda/fused_attention.h"

namespace metp::cuda {

/// Tensors of the graphs, by which operands find them.
enum CudnnTensor : int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

/// What a call of the frontend returned or threw: OK, or FailedPrecondition with its reason.
absl::Status Guarded(const std::function<cudnn_frontend::error_t()>& call);

/// Opens libcudnn.so.9 for the frontend, once. FailedPrecondition: it, or the CUDA runtime as a shared library, is not
/// there.
absl::Status LoadCudnn();

/// o and lse of q, k, v; dq, dk, dv of those, o and d_o, by cuDNN's deterministic algorithm: same call, same bits.
/// `graph` is new; a device, if one is set on it, comes first.
void DescribeForward(const FusedBlock& block, cudnn_frontend::graph::Graph& graph);
void DescribeBackward(const FusedBlock& block, cudnn_frontend::graph::Graph& graph);

/// Looks for cuDNN's ways to run a graph, on the handle's device or, without a handle, on the one that was set on the graph.
/// FailedPrecondition, with cuDNN's reason: there is none.
absl::Status FindWays(cudnn_frontend::graph::Graph& graph, cudnnHandle_t handle);
/// Compiles and loads the best of those ways, which takes a driver. FailedPrecondition: none of them can be.
absl::Status Compile(cudnn_frontend::graph::Graph& graph);

}  // namespace metp::cuda
