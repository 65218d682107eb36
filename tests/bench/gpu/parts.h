#pragma once

// The parts of the benchmark, in the order in which they run: later ones use the rates that earlier ones found.

#include "tests/bench/gpu/bench.h"

namespace metp::gpu_bench {

/// Copy on the device and the large square product.
void MeasureCeilings(Bench& bench);
/// Each product of a training step against the fastest plain call of cuBLASLt, in turns.
void MeasureProducts(Bench& bench);
/// Fused attention, forward and backward.
void MeasureAttention(Bench& bench);
/// Every kernel bound by memory.
void MeasureMemoryBound(Bench& bench);
/// One rank's training step over a loopback communicator, with the step composed from the ceilings and the simulator's
/// prediction. On a backend of its own.
void MeasureStep(const Shapes& shapes, const Rates& rates, Report& report);

}  // namespace metp::gpu_bench
