#include "tests/bench/gpu/bench.h"

#include <algorithm>

#include "tests/bench/gpu/device.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::gpu_bench {
namespace {

constexpr int64_t kPoolValues = int64_t{1} << 22;
constexpr double kShortest = 1e-9;  // what an emulated clock may say of nothing

}  // namespace

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

cuda::CudaOptions BackendOptions() {
  cuda::CudaOptions options{0, DType::kBF16, 1};
  options.fused_attention = OpenLibrary;
  if (TakeEmulation().emulated) options.library_room_bytes = 16 << 20;
  return options;
}

Bench::Bench(const Shapes& shapes, Report& report)
    : shapes_(shapes), report_(report), backend_(BackendOptions(), ledger_) {
  cudaDeviceProp found = {};
  METP_CUDA(cudaGetDeviceProperties(&found, 0));
  l2_bytes_ = found.l2CacheSize;
  const int64_t values = std::min(kPoolValues, shapes.n * shapes.h + 7);
  std::vector<float> host(static_cast<size_t>(values));
  std::uniform_real_distribution<float> spread(-1, 1);
  for (float& x : host) x = spread(random_);
  pool_ = backend_.Allocate(1, values, DType::kF32, MemoryCategory::kTransient);
  backend_.CopyFromHost(host.data(), pool_);
}

Tensor Bench::Values(int64_t rows, int64_t cols, DType type) {
  Tensor x = backend_.Allocate(rows, cols, type, MemoryCategory::kTransient);
  const int64_t size = rows * cols;
  // Each piece starts at another place of the pool, so that operands and rows differ.
  for (int64_t done = 0; done < size;) {
    const int64_t at = std::uniform_int_distribution<int64_t>(0, pool_->cols / 2)(random_) / 4 * 4;
    const int64_t piece = std::min(size - done, pool_->cols - at);
    backend_.Copy(pool_->Cols(at, at + piece), x->Reshape(done, 1, piece));
    done += piece;
  }
  return x;
}

Tensor Bench::Integers(const std::vector<int32_t>& values, int64_t cols) {
  Tensor x = backend_.Allocate(static_cast<int64_t>(values.size()) / cols, cols, DType::kI32,
                               MemoryCategory::kTransient);
  backend_.CopyFromHost(values.data(), x);
  return x;
}

std::vector<int32_t> Bench::RandomIntegers(int64_t count, int64_t below) {
  std::uniform_int_distribution<int32_t> spread(0, static_cast<int32_t>(below - 1));
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& x : values) x = spread(random_);
  return values;
}

int Bench::SetsFor(int64_t bytes) const {
  constexpr int64_t kMost = 64;  // for operands so small that the start of a kernel is all that is seen
  const int64_t wanted = std::max<int64_t>(1, (3 * l2_bytes_ + bytes - 1) / std::max<int64_t>(1, bytes));
  return static_cast<int>(std::min(wanted, std::min<int64_t>(kMost, shapes_.rounds)));
}

std::vector<double> Bench::Medians(const std::vector<Call>& calls, int rounds) {
  constexpr int kWarm = 3;
  if (rounds == 0) rounds = shapes_.rounds;
  std::vector<std::vector<std::pair<Event, Event>>> events(calls.size());
  // All are issued before any is waited for: the device never stands for the host.
  for (int round = -kWarm; round < rounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      Event start = backend_.Record();
      calls[i](round + kWarm);
      Event end = backend_.Record();
      if (round >= 0) events[i].emplace_back(std::move(start), std::move(end));
    }
  }
  backend_.Synchronize();
  std::vector<double> medians;
  for (const auto& pairs : events) {
    std::vector<double> seconds;
    for (const auto& [start, end] : pairs) seconds.push_back(backend_.Seconds(start, end));
    medians.push_back(std::max(MedianOf(std::move(seconds)), kShortest));
  }
  return medians;
}

}  // namespace metp::gpu_bench
