// cuDNN's fused attention by way of its frontend, a library of headers: a graph of one operation, compiled once, for each
// shape. The library itself is opened at run time, so that what is built with it also runs where it is not.

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/backend/cuda/cudnn_graphs.h"
#include "worker/backend/step_error.h"

namespace metp::cuda {
namespace {

namespace fe = cudnn_frontend;

class CudnnAttention final : public FusedAttention {
 public:
  explicit CudnnAttention(cudnnHandle_t handle) : handle_(handle) {}
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention() override { fe::detail::destroy_handle(handle_); }

  std::string Describe() const override {
    const size_t version = fe::detail::get_backend_version();
    return absl::StrCat("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }
  std::optional<int64_t> ForwardWorkspace(const FusedBlock& block) override {
    return Workspace(GraphOf(forward_, block, DescribeForward));
  }
  std::optional<int64_t> BackwardWorkspace(const FusedBlock& block) override {
    return Workspace(GraphOf(backward_, block, DescribeBackward));
  }
  void Forward(const FusedBlock& block, const FusedForward& x) override {
    Run(GraphOf(forward_, block, DescribeForward),
        {{kQ, x.q}, {kK, x.k}, {kV, x.v}, {kO, x.o}, {kLse, x.lse}}, x.workspace);
  }
  void Backward(const FusedBlock& block, const FusedBackward& x) override {
    Run(GraphOf(backward_, block, DescribeBackward),
        {{kQ, x.q},
         {kK, x.k},
         {kV, x.v},
         {kO, x.o},
         {kDo, x.d_o},
         {kLse, x.lse},
         {kDq, x.dq},
         {kDk, x.dk},
         {kDv, x.dv}},
        x.workspace);
  }

 private:
  using Graphs = std::map<FusedBlock, std::unique_ptr<fe::graph::Graph>>;
  using Describer = void (*)(const FusedBlock&, fe::graph::Graph&);

  /// Null where cuDNN has no way for it.
  fe::graph::Graph* GraphOf(Graphs& graphs, const FusedBlock& block, Describer describe) {
    const auto [at, fresh] = graphs.try_emplace(block);
    if (fresh) {
      at->second = std::make_unique<fe::graph::Graph>();
      describe(block, *at->second);
      absl::Status found = FindWays(*at->second, handle_);
      if (found.ok()) found = Compile(*at->second);
      if (!found.ok()) at->second = nullptr;
    }
    return at->second.get();
  }
  static std::optional<int64_t> Workspace(const fe::graph::Graph* graph) {
    int64_t bytes = 0;
    if (graph == nullptr || graph->get_workspace_size(bytes).is_bad()) return std::nullopt;
    return bytes;
  }
  void Run(fe::graph::Graph* graph, const std::vector<std::pair<int64_t, const void*>>& operands,
           void* workspace) {
    std::unordered_map<int64_t, void*> pointers;
    for (const auto& [tensor, data] : operands) pointers[tensor] = const_cast<void*>(data);
    const absl::Status ran = Guarded([&] { return graph->execute(handle_, pointers, workspace); });
    if (!ran.ok()) ThrowIfError(absl::InternalError(ran.message()));
  }

  const cudnnHandle_t handle_;
  Graphs forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FusedAttention>> OpenCudnn(cudaStream_t stream) {
  METP_RETURN_IF_ERROR(LoadCudnn());
  std::unique_ptr<FusedAttention> attention;
  METP_RETURN_IF_ERROR(Guarded([&]() -> fe::error_t {
    const auto failed = [](const char* call, cudnnStatus_t status) -> fe::error_t {
      return {fe::error_code_t::CUDNN_BACKEND_API_FAILED,
              absl::StrCat(call, ": ", fe::detail::get_error_string(status),
                           "; this cuDNN may not go with the device or its driver: compare their versions")};
    };
    cudnnHandle_t handle = nullptr;
    cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) return failed("cudnnCreate", status);
    attention = std::make_unique<CudnnAttention>(handle);
    status = fe::detail::set_stream(handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) return failed("cudnnSetStream", status);
    return {};
  }));
  return attention;
}

}  // namespace metp::cuda
