#pragma once

// Makes a stream take its time: what stands for a slower link.

#include <cuda_runtime.h>

namespace metp::cuda {

/// Writes the device's time to *at (device memory).
void NoteTime(cudaStream_t stream, unsigned long long* at);
/// Holds the stream until `seconds` have passed since the time noted at *at.
void HoldUntil(cudaStream_t stream, const unsigned long long* at, double seconds);

}  // namespace metp::cuda
