// LayerNorm and RMSNorm.
//
// xhat = (x - mean) * rstd with rstd = 1 / sqrt(mean((x - mean)^2) + eps); RMSNorm has mean 0. y = xhat * w + b. With
// g = dy * w:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) for RMSNorm; dw = sum dy * xhat,
// db = sum dy.
//
// A row belongs to a team of threads, from a warp to a block, each with kPacks packs of N elements in registers, so that
// memory is read once. Rows that are not aligned or are longer than that (kPacks 0) are read again at each use.

#include <algorithm>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/partial_sums.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kMostWarps = kMostThreads / kWarp;
constexpr int64_t kGradientBlocks = 132 * 2;  // about all at once on a large device

struct Sums {
  float a, b;
};
constexpr int kRoomFloats = 2 * kMostWarps * 2;
constexpr size_t kRoomBytes = kRoomFloats * sizeof(float);

/// The calling thread's place: its team, and its place in it. Teams of a block step from row to row together.
struct Team {
  int size, index, lane;
  Sums* room;  // 2 * kMostWarps, in turn
  int turn = 0;

  __device__ Team(int team_size, Sums* shared)
      : size(team_size), index(threadIdx.x / team_size), lane(threadIdx.x % team_size), room(shared) {}

  /// Over the team, the same bits in each of its threads. All threads of the block call it.
  __device__ Sums Sum(Sums x) {
    x = {WarpSum(x.a), WarpSum(x.b)};
    if (size == kWarp) return x;
    // Who comes to the call after next has passed the barrier of the next one, and so has everybody who reads here.
    Sums* warps = room + turn * kMostWarps;
    turn ^= 1;
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
    __syncthreads();
    warps += index * (size / kWarp);
    Sums sum = warps[0];
    for (int i = 1; i < size / kWarp; ++i) sum = {sum.a + warps[i].a, sum.b + warps[i].b};
    return sum;
  }
};

/// f(k, col) for each pack of a row that the thread has.
template <int N, int kPacks, typename F>
__device__ inline void ForEachPack(const Team& team, int h, const F& f) {
  if constexpr (kPacks > 0) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int col = (k * team.size + team.lane) * N;
      if (col < h) f(k, col);
    }
  } else {
#pragma unroll 4
    for (int col = team.lane * N; col < h; col += team.size * N) f(0, col);
  }
}

/// One row of [.., h] as a thread sees it: its pack k starts at column (k * team size + lane) * N.
template <typename T, int N, int kPacks>
struct Row {
  T* at;
  Pack<T, N> held[kPacks > 0 ? kPacks : 1];

  /// `h`: the row's width, 0 for no row.
  __device__ Row(const Matrix& x, int64_t row, int h, const Team& team) {
    at = static_cast<T*>(x.data) + row * x.stride;
    if constexpr (kPacks > 0) {
      ForEachPack<N, kPacks>(team, h, [&](int k, int col) { held[k] = LoadPack<T, N>(at + col); });
    }
  }
  /// Pack k, which starts at `col`.
  __device__ Pack<T, N> Get(int k, int col) const {
    if constexpr (kPacks > 0) return held[k];
    return LoadPack<T, N>(at + col);
  }
};

/// sum(f(k, col)) over the packs that the thread has, f giving what one pack adds.
template <int N, int kPacks, typename F>
__device__ inline Sums SumOverPacks(const Team& team, int h, const F& f) {
  Sums sums = {0, 0};
  ForEachPack<N, kPacks>(team, h, [&](int k, int col) { f(k, col, sums); });
  return sums;
}

template <typename X, typename Y, int N, int kPacks>
__global__ void __launch_bounds__(kMostThreads)
    ForwardKernel(bool centred, Matrix x, const float* w, const float* b, float eps, Matrix y,
                  int team_size) {
  Team team(team_size, Shared<Sums>());
  const int64_t teams = blockDim.x / team_size;
  const float share = 1.0f / static_cast<float>(x.cols);
  for (int64_t first = blockIdx.x * teams; first < x.rows; first += gridDim.x * teams) {
    const int64_t row = first + team.index;
    const int h = row < x.rows ? static_cast<int>(x.cols) : 0;
    const Row<X, N, kPacks> in(x, row, h, team);
    float mean = 0;
    if (centred) {
      const Sums sums = SumOverPacks<N, kPacks>(team, h, [&](int k, int col, Sums& sum) {
        const Pack<X, N> pack = in.Get(k, col);
#pragma unroll
        for (int i = 0; i < N; ++i) sum.a += ToFloat(pack.at[i]);
      });
      mean = team.Sum(sums).a * share;
    }
    const Sums squares = SumOverPacks<N, kPacks>(team, h, [&](int k, int col, Sums& sum) {
      const Pack<X, N> pack = in.Get(k, col);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float c = ToFloat(pack.at[i]) - mean;
        sum.a = fmaf(c, c, sum.a);
      }
    });
    const float rstd = 1.0f / sqrtf(team.Sum(squares).a * share + eps);
    Y* out = static_cast<Y*>(y.data) + row * y.stride;
    ForEachPack<N, kPacks>(team, h, [&](int k, int col) {
      const Pack<X, N> pack = in.Get(k, col);
      const Floats<N> scale(w + col);
      float result[N];
#pragma unroll
      for (int i = 0; i < N; ++i) result[i] = (ToFloat(pack.at[i]) - mean) * rstd * scale.at[i];
      if (b != nullptr) {
        const Floats<N> shift(b + col);
#pragma unroll
        for (int i = 0; i < N; ++i) result[i] += shift.at[i];
      }
      Pack<Y, N> narrow;
#pragma unroll
      for (int i = 0; i < N; ++i) narrow.at[i] = FromFloat<Y>(result[i]);
      StorePack(narrow, out + col);
    });
  }
}

/// to[0 .. N) += x: partial sums that only the calling thread touches.
template <int N>
__device__ inline void Accumulate(const float (&x)[N], float* to) {
  Pack<float, N> sums = LoadPack<float, N>(to);
#pragma unroll
  for (int i = 0; i < N; ++i) sums.at[i] += x[i];
  StorePack(sums, to);
}

/// dx += ..., and partials [gridDim.x, vectors, h]: what the block's rows add to dw and, with 2 vectors, to db. Each team
/// sums in shared memory, which leaves room for more blocks than registers would; or in the block's row of `partials`,
/// where that is too much for shared memory and there is but one team.
template <typename X, typename DY, typename DX, int N, int kPacks>
__global__ void __launch_bounds__(kMostThreads, kPacks == 2 || N == 1 ? 2 : 1)
    BackwardKernel(bool centred, Matrix x, const float* w, float eps, Matrix dy, Matrix dx, float* partials,
                   int vectors, int team_size, bool in_shared) {
  Team team(team_size, Shared<Sums>());
  const int64_t teams = blockDim.x / team_size;
  const int width = static_cast<int>(x.cols), size = vectors * width;
  const float share = 1.0f / static_cast<float>(x.cols);
  float* const teams_sums = Shared<float>() + kRoomFloats;
  float* const block_sums = partials + int64_t{blockIdx.x} * size;
  float* const dw = kPacks > 0 || in_shared ? teams_sums + team.index * size : block_sums;
  float* const db = vectors == 2 ? dw + width : nullptr;
  ForEachPack<N, kPacks>(team, width, [&](int, int col) {
    StorePack(Pack<float, N>{}, dw + col);
    if (db != nullptr) StorePack(Pack<float, N>{}, db + col);
  });

  for (int64_t first = blockIdx.x * teams; first < x.rows; first += gridDim.x * teams) {
    const int64_t row = first + team.index;
    const int h = row < x.rows ? static_cast<int>(x.cols) : 0;
    const Row<X, N, kPacks> in(x, row, h, team);
    const Row<DY, N, kPacks> gradient(dy, row, h, team);
    const Row<DX, N, kPacks> out(dx, row, h, team);
    float mean = 0, mean_g = 0;
    if (centred) {
      const Sums sums = team.Sum(SumOverPacks<N, kPacks>(team, h, [&](int k, int col, Sums& sum) {
        const Pack<X, N> pack = in.Get(k, col);
        const Pack<DY, N> g = gradient.Get(k, col);
        const Floats<N> scale(w + col);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sum.a += ToFloat(pack.at[i]);
          sum.b = fmaf(ToFloat(g.at[i]), scale.at[i], sum.b);
        }
      }));
      mean = sums.a * share;
      mean_g = sums.b * share;
    }
    // Sums of c^2 and g c, c = x - mean: rstd is not known yet, and xhat is c rstd.
    const Sums sums = team.Sum(SumOverPacks<N, kPacks>(team, h, [&](int k, int col, Sums& sum) {
      const Pack<X, N> pack = in.Get(k, col);
      const Pack<DY, N> g = gradient.Get(k, col);
      const Floats<N> scale(w + col);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float c = ToFloat(pack.at[i]) - mean;
        sum.a = fmaf(c, c, sum.a);
        sum.b = fmaf(ToFloat(g.at[i]) * scale.at[i], c, sum.b);
      }
    }));
    const float rstd = 1.0f / sqrtf(sums.a * share + eps), mean_gx = sums.b * share * rstd;
    ForEachPack<N, kPacks>(team, h, [&](int k, int col) {
      const Pack<X, N> pack = in.Get(k, col);
      const Pack<DY, N> g = gradient.Get(k, col);
      const Floats<N> scale(w + col);
      Pack<DX, N> result = out.Get(k, col);
      float to_dw[N], to_db[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float xhat = (ToFloat(pack.at[i]) - mean) * rstd;
        to_db[i] = ToFloat(g.at[i]);
        to_dw[i] = to_db[i] * xhat;
        const float through = fmaf(-xhat, mean_gx, to_db[i] * scale.at[i] - mean_g);
        result.at[i] = FromFloat<DX>(fmaf(through, rstd, ToFloat(result.at[i])));
      }
      StorePack(result, out.at + col);
      Accumulate(to_dw, dw + col);
      if (db != nullptr) Accumulate(to_db, db + col);
    });
  }

  if (kPacks == 0 && !in_shared) return;
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    float sum = teams_sums[i];
    for (int t = 1; t < teams; ++t) sum += teams_sums[t * size + i];
    block_sums[i] = sum;
  }
}

/// Threads for a row of `packs` packs at up to `each` per thread: a power of two from a warp to the largest block.
int TeamFor(int64_t packs, int each) {
  int size = kWarp;
  while (size < kMostThreads && size * each < packs) size *= 2;
  return size;
}

bool IsAligned(const Matrix& vector) { return vector.empty() || RowsAligned(vector, 16); }

}  // namespace

void NormForward(cudaStream_t stream, Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                 const Matrix& y) {
  if (x.empty()) return;
  const float* bias = b.empty() ? nullptr : static_cast<const float*>(b.data);
  WithActivation(x.type, [&]<typename X>(X) {
    WithActivation(y.type, [&]<typename Y>(Y) {
      constexpr int kPack = 16 / std::max(sizeof(X), sizeof(Y));
      const auto start = [&](auto kernel, int pack) {
        const int team = TeamFor(CeilDiv(x.cols, pack), 4), threads = std::max(team, 4 * kWarp);
        Launch(stream, GridFor(x.rows, threads / team), threads, kRoomBytes, kernel, norm == Norm::kLayerNorm,
               x, static_cast<const float*>(w.data), bias, eps, y, team);
      };
      const bool in_packs = x.cols % kPack == 0 && RowsAligned(x, kPack * sizeof(X)) &&
                            RowsAligned(y, kPack * sizeof(Y)) && IsAligned(w) && IsAligned(b);
      if (in_packs && x.cols <= 4 * kPack * kMostThreads) {
        start(ForwardKernel<X, Y, kPack, 4>, kPack);
      } else if (in_packs && x.cols <= 8 * kPack * kMostThreads) {
        start(ForwardKernel<X, Y, kPack, 8>, kPack);
      } else {
        start(ForwardKernel<X, Y, 1, 0>, 1);
      }
    });
  });
}

void NormBackward(cudaStream_t stream, Scratch scratch, Norm norm, const Matrix& x, const Matrix& w,
                  float eps, const Matrix& dy, const Matrix& dx, const Matrix& dw, const Matrix& db) {
  if (x.empty()) return;
  constexpr int kPack = 4;
  const int64_t h = x.cols;
  const int vectors = db.empty() ? 1 : 2;
  int64_t blocks = 0;
  WithActivation(x.type, [&]<typename X>(X) {
    WithActivation(dy.type, [&]<typename DY>(DY) {
      WithActivation(dx.type, [&]<typename DX>(DX) {
        const auto start = [&](auto kernel, int pack, int each) {
          const int team = TeamFor(CeilDiv(h, pack), each);
          int64_t teams = kMostThreads / team;
          size_t shared_bytes = kRoomBytes + teams * vectors * h * sizeof(float);
          const bool in_shared = shared_bytes <= kMaxSharedBytes;
          if (!in_shared) {
            teams = 1;
            shared_bytes = kRoomBytes;
          }
          blocks = std::min({kGradientBlocks, CeilDiv(x.rows, teams), scratch.floats / (vectors * h)});
          Launch(stream, static_cast<unsigned>(blocks), static_cast<unsigned>(team * teams), shared_bytes,
                 kernel, norm == Norm::kLayerNorm, x, static_cast<const float*>(w.data), eps, dy, dx,
                 scratch.data, vectors, team, in_shared);
        };
        const bool in_packs = h % kPack == 0 && RowsAligned(x, kPack * sizeof(X)) &&
                              RowsAligned(dy, kPack * sizeof(DY)) && RowsAligned(dx, kPack * sizeof(DX)) &&
                              IsAligned(w);
        if (in_packs && h <= 2 * kPack * kMostThreads) {
          start(BackwardKernel<X, DY, DX, kPack, 2>, kPack, 2);
        } else if (in_packs && h <= 4 * kPack * kMostThreads) {
          start(BackwardKernel<X, DY, DX, kPack, 4>, kPack, 4);
        } else if (in_packs) {
          start(BackwardKernel<X, DY, DX, kPack, 0>, kPack, 4);
        } else {
          start(BackwardKernel<X, DY, DX, 1, 0>, 1, 4);
        }
      });
    });
  });
  AddPartials(stream, scratch.data, blocks, vectors * h, dw);
  if (!db.empty()) AddPartials(stream, scratch.data + h, blocks, vectors * h, db);
}

}  // namespace metp::cuda
