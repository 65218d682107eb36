#pragma once

// The library of fused attention that suites run with: an emulated one beside the emulated device, cuDNN on a real one.

#include "worker/backend/cuda/fused_attention.h"

namespace metp::testing {

inline constexpr char kEmulatedLibrary[] = "an emulated library";

absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> OpenLibraryUnderTest(cudaStream_t stream);

}  // namespace metp::testing
