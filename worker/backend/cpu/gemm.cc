#include "worker/backend/cpu/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {

void SgemmThreads(int threads) { omp_set_num_threads(threads); }

void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const Operand& a, const Operand& b, float beta,
           float* c, int64_t c_stride) {
  const char ta = a.transpose == Transpose::kYes ? 'T' : 'N';
  const char tb = b.transpose == Transpose::kYes ? 'T' : 'N';
  const dnnl_status_t status =
      dnnl_sgemm(ta, tb, m, n, k, alpha, a.data, a.stride, b.data, b.stride, beta, c, c_stride);
  Require(status == dnnl_success, "oneDNN refused a product");
}

void CpuBackend::Gemm(float alpha, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
                      const Matrix& c) {
  const int64_t k = ta == Transpose::kYes ? a.rows : a.cols;
  RequireGemm(activation(), a, ta, b, tb, beta, c);
  if (c.empty()) return;
  if (k == 0) {
    if (beta == 0) Fill(c, 0);
    return;
  }
  // A view of one row may carry any stride; oneDNN wants at least the row's length.
  auto stride = [](const Matrix& x) { return std::max(x.stride, x.cols); };
  SgemmThreads(threads_);
  Sgemm(c.rows, c.cols, k, alpha, {a.f32(), stride(a), ta}, {b.f32(), stride(b), tb}, beta, c.f32(),
        stride(c));
}

}  // namespace metp::cpu

namespace metp {

double MeasureSgemmFlops(int threads) {
  using Clock = std::chrono::steady_clock;
  cpu::SgemmThreads(threads);
  double best = 0;
  for (const int64_t n : {1024, 2048}) {
    const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
    std::vector<float> c(n * n);
    const auto multiply = [&] { cpu::Sgemm(n, n, n, 1, {a.data(), n}, {b.data(), n}, 0, c.data(), n); };
    multiply();  // warms caches and threads
    // The best of a few windows, each long beside the scheduler's turns: where several ranks measure at once on fewer
    // cores, each sees its share, and the sum over ranks is a rate that the machine really has.
    for (int window = 0; window < 4; ++window) {
      const auto start = Clock::now();
      double seconds = 0;
      int calls = 0;
      for (; seconds < 0.25; ++calls) {
        multiply();
        seconds = std::chrono::duration<double>(Clock::now() - start).count();
      }
      best = std::max(best, calls * 2.0 * n * n * n / seconds);
    }
  }
  return best;
}

}  // namespace metp
