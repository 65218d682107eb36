#include "worker/rank/device_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>

#include "worker/rank/link_probe.h"

namespace metp {

namespace {

constexpr double kWindow = 0.12;  // seconds that one kernel is repeated for
constexpr double kLong = 2e-3;    // seconds of a call that need not be longer
constexpr double kRow = 1e-3;     // seconds of a row of calls
constexpr double kLongestRow = 256;
constexpr double kUnlimited = 1e30;

/// Values of either sign between 1/4 and 1/2, a run of 65,537 over and over. Tensor cores that multiply the same
/// value all the time need less power than with real ones, and are clocked higher.
std::vector<uint16_t> RandomBf16(size_t count) {
  constexpr size_t kDifferent = (1 << 16) + 1;  // no multiple of a row's length
  std::vector<uint16_t> values(count);
  std::minstd_rand random;
  const size_t first = std::min(count, kDifferent);
  for (size_t i = 0; i < first; ++i) values[i] = static_cast<uint16_t>((random() >> 8 & 0x807f) | 0x3e80);
  for (size_t i = first; i < count; i += first)
    std::copy_n(values.begin(), std::min(first, count - i), values.begin() + static_cast<int64_t>(i));
  return values;
}

using Extent = ProbeEffort::Extent;
using Work = std::function<void()>;

class Prober {
 public:
  Prober(Backend& backend, Communicator& communicator, const ProbeEffort& effort)
      : backend_(backend), communicator_(communicator), effort_(effort) {}

  Measured Run() {
    Measured out;
    out.workspace = backend_.ledger().current_total();
    Products(out);
    AttentionBlocks(out);
    const int64_t side =
        Grow(effort_.pointwise, [&](int64_t n) { return Pointwise(n, /*window=*/0).seconds; });
    out.memory = Pointwise(side, kWindow);
    const Tensor one = Make(1, 1);
    out.launch = Seconds([&] { backend_.Fill(one, 0); }, kWindow);
    ThrowIfError(communicator_.Barrier());
    const absl::StatusOr<v1::Link> link = MeasureLink(backend_, communicator_);
    ThrowIfError(link.status());
    out.link = *link;
    return out;
  }

 private:
  bool HasTime() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() < effort_.seconds;
  }

  /// The first n whose work takes long, or the last that there is time for.
  int64_t Grow(const Extent& extent, const std::function<double(int64_t)>& seconds) const {
    int64_t n = extent.least;
    while (n < extent.most && HasTime() && seconds(n) < kLong) n *= 2;
    return n;
  }

  Tensor Make(int64_t rows, int64_t cols, DType type) {
    Tensor x = backend_.Allocate(rows, cols, type, MemoryCategory::kTransient);
    if (type == DType::kBF16) {
      backend_.CopyFromHost(RandomBf16(static_cast<size_t>(rows * cols)).data(), x);
    } else {
      backend_.Fill(x, 0.01f);
    }
    return x;
  }
  Tensor Make(int64_t rows, int64_t cols) { return Make(rows, cols, backend_.activation()); }

  /// Of `calls` of them, one behind the other.
  double RowSeconds(const Work& call, int calls) {
    const Event start = backend_.Record();
    for (int i = 0; i < calls; ++i) call();
    const Event end = backend_.Record();
    backend_.Synchronize();
    return backend_.Seconds(start, end);
  }

  /// Median seconds of a call, all ranks at it at once.
  double Seconds(const Work& call, double window) {
    call();
    ThrowIfError(communicator_.Barrier());
    int row = 1;
    if (effort_.queued) row = static_cast<int>(std::clamp(kRow / RowSeconds(call, 1), 1.0, kLongestRow));
    std::vector<double> seconds;
    for (double total = 0; seconds.empty() || (HasTime() && (total < window || seconds.size() < 3));) {
      const double taken = RowSeconds(call, row);
      seconds.push_back(taken / row);
      total += taken;
    }
    ThrowIfError(communicator_.Barrier());
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

  /// Wide, narrow in the result, narrow inside, and as thin as one head group's.
  void Products(Measured& out) {
    const int64_t n =
        Grow(effort_.side, [&](int64_t side) { return Product(side, side, side, /*window=*/0).seconds; });
    const int64_t shapes[][3] = {{n, n, n},          {n / 2, 11 * n / 8, n / 2}, {n / 2, n / 2, 11 * n / 8},
                                 {2 * n, 64, n / 2}, {n / 2, 2 * n, 64},         {64, n / 2, 2 * n}};
    for (const auto& [m, cols, k] : shapes) out.gemm.push_back(Product(m, cols, k, kWindow));
  }

  Sample Product(int64_t m, int64_t n, int64_t k, double window) {
    const Tensor a = Make(m, k), b = Make(k, n), c = Make(m, n);
    const double seconds =
        Seconds([&] { backend_.Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c); }, window);
    return {2.0 * static_cast<double>(m * n * k), static_cast<double>(a->bytes() + b->bytes() + c->bytes()),
            seconds};
  }

  void AttentionBlocks(Measured& out) {
    const int h = effort_.heads;
    const int64_t n = Grow(effort_.rows, [&](int64_t rows) {
      Measured tried;
      Attention(rows, h, 64, /*window=*/0, tried);
      return tried.attention_forward.front().seconds;
    });
    const struct {
      int64_t rows;
      int heads, d;
    } blocks[] = {{n, h, 64}, {n / 2, 2 * h, 64}, {n, h, 32}, {n, h / 2, 128}};
    for (const auto& [rows, heads, d] : blocks) Attention(rows, heads, d, kWindow, out);
  }

  void Attention(int64_t rows, int heads, int d, double window, Measured& out) {
    const int64_t width = int64_t{heads} * d;
    const Tensor q = Make(rows, width), k = Make(rows, width), v = Make(rows, width);
    const Tensor o = Make(rows, width, DType::kF32), d_o = Make(rows, width);
    const Tensor dq = Make(rows, width, DType::kF32), dk = Make(rows, width, DType::kF32),
                 dv = Make(rows, width, DType::kF32);
    const Tensor lse = Make(rows, heads, DType::kF32), delta = Make(rows, heads, DType::kF32);
    const Tensor visible = backend_.Allocate(rows, 2, DType::kI32, MemoryCategory::kTransient);
    std::vector<int32_t> spans(2 * rows, 0);
    for (int64_t i = 0; i < rows; ++i) spans[2 * i + 1] = static_cast<int32_t>(rows);
    backend_.CopyFromHost(spans.data(), visible);
    AttentionBlock block;
    block.q = q;
    block.k = k;
    block.v = v;
    block.visible = visible;
    block.mask = BlockMask::kNone;
    block.heads = block.kv_heads = heads;
    block.head_dim = d;
    block.scale = 1 / std::sqrt(static_cast<float>(d));
    block.pairs = rows * rows;
    const double scores = static_cast<double>(block.pairs) * heads;
    out.attention_forward.push_back(
        {4 * scores * d, scores, Seconds([&] { backend_.AttentionForward(block, o, lse); }, window)});
    out.attention_backward.push_back(
        {10 * scores * d, scores,
         Seconds([&] { backend_.AttentionBackward(block, d_o, d_o, lse, delta, dq, dk, dv); }, window)});
  }

  /// A mix of what a layer does beside products, bytes against time.
  Sample Pointwise(int64_t n, double window) {
    const Tensor x = Make(n, n), y = Make(n, n), z = Make(n, n);
    const Tensor w = Make(1, n, DType::kF32), dw = Make(1, n, DType::kF32);
    const auto mix = [&] {
      backend_.ActivationForward(Activation::kSwiGlu, x, y, z);
      backend_.ActivationBackward(Activation::kSwiGlu, x, y, z);
      backend_.NormForward(Norm::kRmsNorm, x, w, {}, 1e-5f, y);
      backend_.NormBackward(Norm::kRmsNorm, x, w, 1e-5f, y, z, dw, {});
      backend_.Copy(x, y);
      backend_.Add(x, y);
    };
    return {static_cast<double>((3 + 6 + 2 + 4 + 2 + 3) * x->bytes()), 0, Seconds(mix, window)};
  }

  Backend& backend_;
  Communicator& communicator_;
  const ProbeEffort& effort_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double Rate(double seconds_per_unit) { return seconds_per_unit > 0 ? 1 / seconds_per_unit : kUnlimited; }

v1::KernelRate AttentionRate(const std::vector<Sample>& samples) {
  const Fit fit = FitRates(samples);
  v1::KernelRate rate;
  rate.set_flops_per_second(Rate(fit.a));
  rate.set_bytes_per_second(kUnlimited);  // the blocks were larger than caches: in the other two already
  rate.set_scores_per_second(Rate(fit.b));
  return rate;
}

}  // namespace

Measured MeasureDevice(Backend& backend, Communicator& communicator, const ProbeEffort& effort) {
  return Prober(backend, communicator, effort).Run();
}

void SetRates(const Measured& measured, v1::DeviceProfile& profile) {
  profile.set_workspace_bytes(measured.workspace);
  profile.set_bytes_per_second(measured.memory.first / measured.memory.seconds);
  profile.set_kernel_seconds(measured.launch);
  const Fit gemm = FitRates(measured.gemm);
  profile.mutable_gemm()->set_flops_per_second(Rate(gemm.a));
  profile.mutable_gemm()->set_bytes_per_second(Rate(gemm.b));
  *profile.mutable_attention_forward() = AttentionRate(measured.attention_forward);
  *profile.mutable_attention_backward() = AttentionRate(measured.attention_backward);
}

Fit FitRates(const std::vector<Sample>& samples) {
  // Of a x + b y = 1, x and y relative to the seconds; then the better of the two fits with one of them alone where
  // the common one has a negative side.
  double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
  for (const Sample& sample : samples) {
    const double x = sample.first / sample.seconds, y = sample.second / sample.seconds;
    xx += x * x;
    xy += x * y;
    yy += y * y;
    x1 += x;
    y1 += y;
  }
  const double determinant = xx * yy - xy * xy;
  const Fit both = determinant > 0 ? Fit{(x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant}
                                   : Fit{-1, -1};
  if (both.a >= 0 && both.b >= 0) return both;
  const Fit first{xx > 0 ? x1 / xx : 0, 0}, second{0, yy > 0 ? y1 / yy : 0};
  // Each explains x1 a or y1 b of the sum of ones.
  return first.a * x1 >= second.b * y1 ? first : second;
}

}  // namespace metp
