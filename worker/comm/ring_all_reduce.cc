#include "worker/comm/ring_all_reduce.h"

#include <cstdint>
#include <vector>

#include "proto/support/status_macros.h"

namespace metp {
namespace {

template <typename T>
void AddTo(const Matrix& from, const Matrix& to) {
  const T* x = static_cast<const T*>(from.data);
  T* y = static_cast<T*>(to.data);
  for (int64_t i = 0; i < to.size(); ++i) y[i] += x[i];
}

Exchange Transfers(const Matrix& send, const Matrix& receive) {
  Exchange exchange;
  if (!send.empty()) exchange.sends.push_back(send);
  if (!receive.empty()) exchange.receives.push_back(receive);
  return exchange;
}

}  // namespace

absl::Status RingAllReduce(int rank, int size, const Matrix& values,
                           const std::function<absl::Status(Exchange)>& hop) {
  const int64_t n = values.size();
  if (size == 1 || n == 0) return absl::OkStatus();
  const auto segment = [&](int i) {
    const int64_t j = (i % size + size) % size;
    const int64_t begin = n * j / size, end = n * (j + 1) / size;
    return values.Reshape(begin, 1, end - begin);
  };
  std::vector<double> scratch((n / size + 1) * SizeOf(values.type) / sizeof(double) + 1);

  for (int t = 0; t < size - 1; ++t) {
    const Matrix mine = segment(rank - t - 1);
    Matrix arrived = mine;
    arrived.data = scratch.data();
    METP_RETURN_IF_ERROR(hop(Transfers(segment(rank - t), arrived)));
    if (values.type == DType::kF64) {
      AddTo<double>(arrived, mine);
    } else {
      AddTo<float>(arrived, mine);
    }
  }
  for (int t = 0; t < size - 1; ++t) {
    METP_RETURN_IF_ERROR(hop(Transfers(segment(rank + 1 - t), segment(rank - t))));
  }
  return absl::OkStatus();
}

}  // namespace metp
