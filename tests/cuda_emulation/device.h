#pragma once

// The devices, their memory's accounts, and the errors of calls.

#include <cuda_runtime.h>

#include <cstddef>

namespace metp::emulation {

/// The calling thread's.
int CurrentDevice();
/// cudaSuccess, or why the device can do nothing: there is none, or it is broken.
cudaError_t DeviceState(int device);
cudaError_t DeviceState();
void BreakDevice(int device, cudaError_t error);

/// Takes bytes off the device's free memory; false where there are too few. Thread-safe.
bool Reserve(int device, size_t bytes);
void Unreserve(int device, size_t bytes);
/// The same for page-locked memory of the host.
bool ReservePinned(size_t bytes);
void UnreservePinned(size_t bytes);

/// As configured.
bool Fragments();
size_t SharedOptIn();

/// What a call returns; kept for cudaGetLastError.
cudaError_t Result(cudaError_t error);

}  // namespace metp::emulation
