#pragma once

// How elementwise operations walk over matrices: packs of up to 16 bytes where the rows of all operands are aligned to
// them, single elements otherwise, in both cases neighbouring threads at neighbouring addresses. Each thread has several
// packs on their way before it uses the first.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "worker/backend/checks.h"
#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

inline constexpr int kWalkThreads = 256;

/// N floats beside a pack of N elements of another type, in accesses of up to 16 bytes.
template <int N>
struct Floats {
  float at[N];
  Floats() = default;
  __device__ explicit Floats(const float* from) {
    constexpr int kStep = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += kStep) {
      const Pack<float, kStep> pack = LoadPack<float, kStep>(from + i);
#pragma unroll
      for (int j = 0; j < kStep; ++j) at[i + j] = pack.at[j];
    }
  }
};

/// All packs of [rows, cols], shared out to the threads of a launch: thread i has packs i, i + threads, i + 2 threads, ...
/// counted row by row. Divides once; from one pack to the next it adds.
struct Walk {
  int64_t rows = 0, cols = 0;
  int64_t packs = 0;                      // of a row, the last of which may be partial
  int64_t step_rows = 0, step_packs = 0;  // all threads of the launch, in rows and packs

  struct Place {
    int64_t row, pack;
  };
  __device__ Place Start() const {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < packs) return {0, i};
    const unsigned per_row = static_cast<unsigned>(packs);
    return {i / per_row, i % per_row};
  }
  __device__ void Advance(Place& place) const {
    place.row += step_rows;
    place.pack += step_packs;
    if (place.pack < packs) return;
    place.pack -= packs;
    ++place.row;
  }
  /// How many of a pack's N elements there are.
  template <int N>
  __device__ int Elements(const Place& place) const {
    if (place.row >= rows) return 0;
    const int64_t left = cols - place.pack * N;
    return left < N ? static_cast<int>(left) : N;
  }
};

/// For `blocks` blocks of kWalkThreads threads and packs of N elements.
template <int N>
Walk WalkFor(int64_t rows, int64_t cols, unsigned blocks) {
  const int64_t packs = CeilDiv(cols, N), threads = int64_t{blocks} * kWalkThreads;
  return {rows, cols, packs, threads / packs, threads % packs};
}

enum class Use { kRead, kWrite, kUpdate };

/// A matrix as an elementwise operation's argument. Addresses are formed in whole packs, from which the compiler sees that
/// they are aligned: without that it stores element by element.
template <typename T, Use kUse>
struct Operand {
  using Element = T;
  static constexpr bool kRead = kUse != Use::kWrite, kWritten = kUse != Use::kRead;
  T* data;
  int64_t stride;  // in elements, and in packs once InPacksOf has been asked for
  bool contiguous;

  explicit Operand(const Matrix& m)
      : data(static_cast<T*>(m.data)), stride(m.stride), contiguous(m.contiguous()) {}
  template <int N>
  bool Allows(int64_t rows) const {
    constexpr int64_t kBytes = sizeof(T);
    return RowsAligned(data, rows, stride * kBytes, N * kBytes);
  }
  template <int N>
  Operand InPacksOf() const {
    Operand copy = *this;
    copy.stride /= N;
    return copy;
  }
  template <int N>
  __device__ Pack<T, N>& At(const Walk::Place& place) const {
    return reinterpret_cast<Pack<T, N>*>(data)[place.row * stride + place.pack];
  }
  template <int N>
  __device__ void Load(const Walk::Place& place, Pack<T, N>& pack) const {
    if constexpr (kRead) pack = At<N>(place);
  }
  template <int N>
  __device__ void Store(const Walk::Place& place, const Pack<T, N>& pack) const {
    if constexpr (kWritten) At<N>(place) = pack;
  }
};
template <typename T>
using In = Operand<T, Use::kRead>;
template <typename T>
using Out = Operand<T, Use::kWrite>;
template <typename T>
using InOut = Operand<T, Use::kUpdate>;

/// Packs that a thread has on their way at once: 64 bytes of reads, and no fewer than two packs.
template <int N, typename... Operands>
constexpr int PacksInFlight() {
  constexpr int kBytes =
      (0 + ... + (Operands::kRead ? static_cast<int>(sizeof(typename Operands::Element)) * N : 0));
  return kBytes == 0 ? 4 : std::clamp(64 / kBytes, 2, 8);
}

/// f on the elements of whole packs: all loads, then the rest.
template <int N, int kPacks, typename F, typename... Operands>
__device__ inline void ApplyTo(const F& f, const Walk::Place (&places)[kPacks], const Operands&... operands) {
  std::tuple<Pack<typename Operands::Element, N>...> held[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    std::apply([&](auto&... pack) { (operands.Load(places[k], pack), ...); }, held[k]);
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    std::apply(
        [&](auto&... pack) {
#pragma unroll
          for (int i = 0; i < N; ++i) f(pack.at[i]...);
          (operands.Store(places[k], pack), ...);
        },
        held[k]);
  }
}

/// f(element of each operand...) at every place; f changes the elements of those that are written. Where two operands are
/// one matrix, f reads both before it writes.
template <int N, int kPacks, typename F, typename... Operands>
__global__ void __launch_bounds__(kWalkThreads) ElementwiseKernel(Walk walk, F f, Operands... operands) {
  Walk::Place place = walk.Start();
  while (place.row < walk.rows) {
    Walk::Place places[kPacks];
    const Walk::Place first = place;
    bool whole = true;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      places[k] = place;
      whole = whole && walk.Elements<N>(place) == N;
      walk.Advance(place);
    }
    if (whole) {
      ApplyTo<N>(f, places, operands...);
      continue;
    }
    place = first;
#pragma unroll 1
    for (int k = 0; k < kPacks; ++k) {
      const int elements = walk.Elements<N>(place);
#pragma unroll 1
      for (int i = 0; i < elements; ++i) f(operands.template At<N>(place).at[i]...);
      walk.Advance(place);
    }
  }
}

template <int N, typename F, typename... Operands>
void LaunchElementwise(cudaStream_t stream, int64_t rows, int64_t cols, const F& f,
                       const Operands&... operands) {
  constexpr int kPacks = PacksInFlight<N, Operands...>();
  const unsigned blocks = GridFor(rows * CeilDiv(cols, N), int64_t{kWalkThreads} * kPacks);
  Launch(stream, blocks, kWalkThreads, 0, ElementwiseKernel<N, kPacks, F, Operands...>,
         WalkFor<N>(rows, cols, blocks), f, operands.template InPacksOf<N>()...);
}

/// A row [1, cols] as the matrix [rows, cols] that has it in every row.
inline Matrix EveryRow(const Matrix& row, int64_t rows) {
  Matrix m = row;
  m.rows = rows;
  m.stride = 0;
  return m;
}

/// Launches f(element of each operand...) at every place of `shape`'s shape.
template <typename F, typename... Operands>
void Elementwise(cudaStream_t stream, const Matrix& shape, const F& f, const Operands&... operands) {
  if (shape.empty()) return;
  int64_t rows = shape.rows, cols = shape.cols;
  if (rows == 1 || (operands.contiguous && ...)) {
    cols *= rows;
    rows = 1;
  }
  constexpr int kPack = 16 / std::max({sizeof(typename Operands::Element)...});
  if ((operands.template Allows<kPack>(rows) && ...)) {
    LaunchElementwise<kPack>(stream, rows, cols, f, operands...);
  } else {
    LaunchElementwise<1>(stream, rows, cols, f, operands...);
  }
}

/// f(T()) with the C++ type that stands for a float type.
template <typename F>
void WithFloat(DType type, const F& f) {
  switch (type) {
    case DType::kF32:
      return f(float());
    case DType::kBF16:
      return f(bf16());
    case DType::kF64:
      return f(double());
    case DType::kI32:
      return Require(false, "elementwise operations expect float types");
  }
}
/// The same where fp64 cannot be.
template <typename F>
void WithActivation(DType type, const F& f) {
  if (type == DType::kF32) {
    f(float());
  } else {
    f(bf16());
  }
}

}  // namespace metp::cuda
