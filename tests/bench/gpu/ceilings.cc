// What this device reaches today with the plainest of programs: the figures that all others are shares of.

#include "tests/bench/gpu/parts.h"
#include "tests/bench/gpu/plain_product.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::gpu_bench {

void MeasureCeilings(Bench& bench) {
  const Shapes& shapes = bench.shapes();
  cuda::CudaBackend& backend = bench.backend();
  Report& report = bench.report();
  {
    const int64_t values = shapes.copy_bytes / SizeOf(DType::kF32);
    const Tensor from = bench.Values(1, values, DType::kF32), to = bench.Values(1, values, DType::kF32);
    const double seconds = bench.Median([&](int) {
      METP_CUDA(cudaMemcpyAsync(to->data, from->data, static_cast<size_t>(from->bytes()),
                                cudaMemcpyDeviceToDevice, backend.stream()));
    });
    bench.rates().copied_bytes = 2.0 * static_cast<double>(from->bytes()) / seconds;
    report.Section("Ceilings: copy", "GB/s", "");
    report.Add(
        {"copy on the device, bytes read and written", seconds, bench.rates().copied_bytes * 1e-9, -1, ""});
  }
  const int64_t n = shapes.square;
  const Tensor a = bench.Values(n, n), b = bench.Values(n, n), c = bench.Values(n, n);
  cuda::Product product;
  product.a = a;
  product.b = b;
  product.c = c;
  PlainProduct plain(bench, product);
  plain.ChooseFastest([&](int) -> const cuda::Product& { return product; });
  const std::vector<double> seconds =
      bench.Medians({[&](int) { plain.Run(product); },
                     [&](int) { backend.Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c); }});
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  bench.rates().product_flops = flops / seconds[0];
  report.Section("Ceilings: bf16 product of " + std::to_string(n) + " cubed", "TFLOP/s", "the fastest");
  report.Add({"fastest of cuBLASLt's", seconds[0], flops / seconds[0] * 1e-12, -1,
              std::to_string(plain.algorithms()) + " algorithms"});
  report.Add({"the backend's", seconds[1], flops / seconds[1] * 1e-12, seconds[0] / seconds[1], ""});

  // Many in a row, as in a step: what one costs beside others.
  constexpr int kInARow = 50;
  const Tensor one = bench.Values(1, 1, DType::kF32);
  const double row = bench.Median([&](int) {
    for (int i = 0; i < kInARow; ++i) backend.Fill(one, 0);
  });
  bench.rates().kernel_seconds = row / kInARow;
  report.Section("Ceilings: start of a kernel", "k/s", "");
  report.Add({"one of many in a row", row / kInARow, 1e-3 * kInARow / row, -1, ""});
}

}  // namespace metp::gpu_bench
