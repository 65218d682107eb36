#include "worker/rank/probe.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "worker/backend/backend.h"
#include "worker/backend/sim/profile.h"
#include "worker/comm/communicator.h"
#include "worker/rank/link_probe.h"
#include "worker/rank/rendezvous.h"

namespace metp {

namespace {

constexpr double kWindow = 0.12;  // seconds that one kernel is repeated for
constexpr double kUnlimited = 1e30;

/// The samples of one rank, every kind in the same order on every rank.
struct Measured {
  std::vector<Sample> gemm, attention_forward, attention_backward;  // flops and bytes; flops and scores
  Sample memory;                                                    // bytes
  double launch = 0;
  v1::Link link;
  int64_t workspace = 0;
};

class Prober {
 public:
  Prober(int threads, Communicator& communicator)
      : backend_(MakeCpuBackend(threads, ledger_)), communicator_(communicator) {}

  Measured Run() {
    Measured out;
    out.workspace = ledger_.current_total();
    for (const auto& [m, n, k] : kProducts) out.gemm.push_back(Product(m, n, k));
    for (const auto& [rows, heads, d] : kBlocks) Attention(rows, heads, d, out);
    out.memory = Pointwise();
    const Tensor one = Make(1, 1);
    out.launch = Seconds([&] { backend_->Fill(one, 0); });
    ThrowIfError(communicator_.Barrier());
    const absl::StatusOr<v1::Link> link = MeasureLink(*backend_, communicator_);
    ThrowIfError(link.status());
    out.link = *link;
    return out;
  }

 private:
  // Wide, narrow in the result, narrow inside, and as thin as one head group's.
  static constexpr int64_t kProducts[][3] = {{1024, 1024, 1024}, {512, 1408, 512}, {512, 512, 1408},
                                             {2048, 64, 512},    {512, 2048, 64},  {64, 512, 2048}};
  static constexpr int kBlocks[][3] = {{1024, 4, 64}, {512, 8, 64}, {1024, 4, 32}, {1024, 2, 128}};

  Tensor Make(int64_t rows, int64_t cols) {
    Tensor x = backend_->Allocate(rows, cols, DType::kF32, MemoryCategory::kTransient);
    backend_->Fill(x, 0.01f);
    return x;
  }

  /// Median seconds of a call, all ranks at it at once.
  double Seconds(const std::function<void()>& call) {
    call();
    ThrowIfError(communicator_.Barrier());
    std::vector<double> seconds;
    for (double total = 0; total < kWindow || seconds.size() < 3; total += seconds.back()) {
      const Event start = backend_->Record();
      call();
      const Event end = backend_->Record();
      backend_->Synchronize();
      seconds.push_back(backend_->Seconds(start, end));
    }
    ThrowIfError(communicator_.Barrier());
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

  Sample Product(int64_t m, int64_t n, int64_t k) {
    const Tensor a = Make(m, k), b = Make(k, n), c = Make(m, n);
    const double seconds = Seconds([&] { backend_->Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c); });
    return {2.0 * static_cast<double>(m * n * k), static_cast<double>(a->bytes() + b->bytes() + c->bytes()),
            seconds};
  }

  void Attention(int64_t rows, int heads, int d, Measured& out) {
    const Tensor q = Make(rows, int64_t{heads} * d), k = Make(rows, int64_t{heads} * d),
                 v = Make(rows, int64_t{heads} * d);
    const Tensor o = Make(rows, int64_t{heads} * d), d_o = Make(rows, int64_t{heads} * d);
    const Tensor dq = Make(rows, int64_t{heads} * d), dk = Make(rows, int64_t{heads} * d),
                 dv = Make(rows, int64_t{heads} * d);
    const Tensor lse = Make(rows, heads), delta = Make(rows, heads);
    const Tensor visible = backend_->Allocate(rows, 2, DType::kI32, MemoryCategory::kTransient);
    std::vector<int32_t> spans(2 * rows, 0);
    for (int64_t i = 0; i < rows; ++i) spans[2 * i + 1] = static_cast<int32_t>(rows);
    backend_->CopyFromHost(spans.data(), visible);
    AttentionBlock block;
    block.q = q;
    block.k = k;
    block.v = v;
    block.visible = visible;
    block.heads = block.kv_heads = heads;
    block.head_dim = d;
    block.scale = 1 / std::sqrt(static_cast<float>(d));
    block.pairs = rows * rows;
    const double scores = static_cast<double>(block.pairs) * heads;
    out.attention_forward.push_back(
        {4 * scores * d, scores, Seconds([&] { backend_->AttentionForward(block, o, lse); })});
    out.attention_backward.push_back({10 * scores * d, scores, Seconds([&] {
                                        backend_->AttentionBackward(block, d_o, lse, delta, dq, dk, dv);
                                      })});
  }

  /// A mix of what a layer does beside products, bytes against time.
  Sample Pointwise() {
    const int64_t n = 1024, h = 1024;
    const Tensor x = Make(n, h), y = Make(n, h), z = Make(n, h), w = Make(1, h), dw = Make(1, h);
    const double seconds = Seconds([&] {
      backend_->ActivationForward(Activation::kSwiGlu, x, y, z);
      backend_->ActivationBackward(Activation::kSwiGlu, x, y, z);
      backend_->NormForward(Norm::kRmsNorm, x, w, {}, 1e-5f, y);
      backend_->NormBackward(Norm::kRmsNorm, x, w, 1e-5f, y, z, dw, {});
      backend_->Copy(x, y);
      backend_->Add(x, y);
    });
    return {static_cast<double>((3 + 6 + 2 + 4 + 2 + 3) * x->bytes()), 0, seconds};
  }

  MemoryLedger ledger_;
  const std::unique_ptr<Backend> backend_;
  Communicator& communicator_;
};

void KeepSlower(std::vector<Sample>& samples, const std::vector<Sample>& other) {
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds = std::max(samples[i].seconds, other[i].seconds);
}

void KeepSlower(v1::Link& link, const v1::Link& other) {
  link.set_latency_seconds(std::max(link.latency_seconds(), other.latency_seconds()));
  link.set_bytes_per_second(std::min(link.bytes_per_second(), other.bytes_per_second()));
}

Measured Slowest(const std::vector<Measured>& ranks) {
  Measured slowest = ranks.front();
  for (const Measured& rank : ranks) {
    KeepSlower(slowest.gemm, rank.gemm);
    KeepSlower(slowest.attention_forward, rank.attention_forward);
    KeepSlower(slowest.attention_backward, rank.attention_backward);
    slowest.memory.seconds = std::max(slowest.memory.seconds, rank.memory.seconds);
    slowest.launch = std::max(slowest.launch, rank.launch);
    KeepSlower(slowest.link, rank.link);
  }
  return slowest;
}

double Rate(double seconds_per_unit) { return seconds_per_unit > 0 ? 1 / seconds_per_unit : kUnlimited; }

/// body(rank, communicator) on a thread for each rank. Throws the first StepError.
void OnEveryRank(int ranks, ProbedLink link, const std::function<void(int, Communicator&)>& body) {
  std::vector<std::unique_ptr<Communicator>> communicators(ranks);
  if (ranks == 1 || link == ProbedLink::kMemory) communicators = MakeLocalCommunicators(ranks);
  LocalRendezvous rendezvous;
  std::vector<std::optional<StepError>> errors(ranks);
  std::vector<std::thread> runners;
  for (int rank = 0; rank < ranks; ++rank) {
    runners.emplace_back([&, rank] {
      std::unique_ptr<Communicator>& communicator = communicators[rank];
      try {
        if (communicator == nullptr) {
          auto connected = MakeGlooCommunicator(rank, ranks, "127.0.0.1", rendezvous);
          ThrowIfError(connected.status());
          communicator = *std::move(connected);
        }
        body(rank, *communicator);
        ThrowIfError(communicator->Barrier());  // nobody leaves while a neighbour still needs the ring
      } catch (const StepError& error) {
        if (communicator != nullptr) communicator->Abort(error.status());
        errors[rank] = error;
      } catch (const std::bad_alloc&) {
        const absl::Status full = absl::ResourceExhaustedError("the host has no memory left to measure in");
        if (communicator != nullptr) communicator->Abort(full);
        errors[rank] = StepError(full);
      }
    });
  }
  for (std::thread& runner : runners) runner.join();
  for (const auto& error : errors) {
    if (error) throw StepError(*error);
  }
}

v1::KernelRate AttentionRate(const std::vector<Sample>& samples) {
  const Fit fit = FitRates(samples);
  v1::KernelRate rate;
  rate.set_flops_per_second(Rate(fit.a));
  rate.set_bytes_per_second(kUnlimited);  // the blocks were larger than caches: in the other two already
  rate.set_scores_per_second(Rate(fit.b));
  return rate;
}

}  // namespace

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

v1::DeviceProfile ProbeThisMachine(int ranks, int threads, ProbedLink link) {
  std::vector<Measured> measured(ranks);
  OnEveryRank(ranks, link, [&](int rank, Communicator& communicator) {
    measured[rank] = Prober(threads, communicator).Run();
  });
  if (ranks == 1 && link == ProbedLink::kLoopback) {  // what neighbours on this machine would have
    OnEveryRank(2, link, [&](int rank, Communicator& communicator) {
      MemoryLedger ledger;
      const std::unique_ptr<Backend> backend = MakeCpuBackend(1, ledger);
      const absl::StatusOr<v1::Link> between = MeasureLink(*backend, communicator);
      ThrowIfError(between.status());
      if (rank == 0) measured[0].link = *between;
    });
  }
  const Measured slowest = Slowest(measured);

  v1::DeviceProfile profile;
  profile.set_name("local");
  profile.set_source("measured with " + std::to_string(ranks) + (ranks == 1 ? " rank of " : " ranks of ") +
                     std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " at once");
  profile.set_precision(v1::DeviceProfile::PRECISION_FP32);
  profile.set_memory_bytes(int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE) / ranks);
  profile.set_reserved_bytes(0);
  profile.set_one_memory(true);
  profile.set_workspace_bytes(slowest.workspace);
  profile.set_bytes_per_second(slowest.memory.first / slowest.memory.seconds);
  profile.set_kernel_seconds(slowest.launch);
  const Fit gemm = FitRates(slowest.gemm);
  profile.mutable_gemm()->set_flops_per_second(Rate(gemm.a));
  profile.mutable_gemm()->set_bytes_per_second(Rate(gemm.b));
  *profile.mutable_attention_forward() = AttentionRate(slowest.attention_forward);
  *profile.mutable_attention_backward() = AttentionRate(slowest.attention_backward);
  *profile.mutable_link() = slowest.link;
  profile.set_devices_per_node(ranks);
  NormalizeProfile(profile);
  return profile;
}

}  // namespace metp
