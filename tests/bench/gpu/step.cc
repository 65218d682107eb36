// A training step of rank 0 of a ring at full scale: the Trainer itself, on this device alone, whose hops go to itself at
// the rate of a link. Beside it the same step composed from the ceilings, and the simulator's prediction from this run's
// rates; both by the simulated backend, which counts the operations of the same code.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/job_file.h"
#include "tests/bench/gpu/parts.h"
#include "worker/backend/sim/profile.h"
#include "worker/comm/device/device_communicators.h"
#include "worker/model/plan.h"
#include "worker/rank/simulate.h"
#include "worker/rank/trainer.h"

namespace metp::gpu_bench {
namespace {

constexpr double kUnlimited = 1e30;

/// Tokens that look random and depend on their place alone.
class RandomTokens final : public Dataset {
 public:
  explicit RandomTokens(const v1::JobSpec& job)
      : length_(job.data().sequence_length()), vocabulary_(job.model().vocab()) {}
  int64_t tokens() const override { return sequences() * length_ + 1; }
  int64_t sequences() const override { return 1000; }
  void Read(int64_t k, int64_t begin, int64_t end, int32_t* tokens, int32_t* targets) const override {
    for (int64_t i = begin; i < end; ++i) {
      tokens[i - begin] = At(k * length_ + i);
      targets[i - begin] = At(k * length_ + i + 1);
    }
  }
  std::vector<int64_t> DocumentStarts(int64_t) const override { return {0}; }

 private:
  /// The finalizer of MurmurHash3.
  int32_t At(int64_t position) const {
    auto x = static_cast<uint64_t>(position) + 1;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return static_cast<int32_t>((x ^ x >> 33) % static_cast<uint64_t>(vocabulary_));
  }
  const int64_t length_, vocabulary_;
};

v1::JobSpec JobOf(const Shapes& s) {
  const std::string text = absl::StrCat(
      "name: step\nmodel: {family: llama, layers: ", s.layers, ", hidden: ", s.h, ", heads: ", s.heads,
      ", kv_heads: ", s.kv_heads, ", head_dim: ", s.d, ", ffn: ", s.f, ", vocab: ", s.V,
      ", rope_theta: 500000}\ndata: {source: random.bin, tokenizer: none, token_type: uint32, "
      "sequence_length: ",
      s.n * s.p, "}\ntrain: {steps: 1000, learning_rate: 1e-5}\nparallel: {degree: ", s.p,
      ", head_groups: ", s.groups, ", tile_rows: ", s.tile_rows, "}\n");
  absl::StatusOr<v1::JobSpec> job = ParseJob(text, "the benchmark's job");
  ThrowIfError(job.status());
  return *std::move(job);
}

struct Measured {
  double seconds = 0, exposed = 0, communication = 0, model_flops = 0;
  int64_t peak_bytes = 0, workspace_bytes = 0, reserved_bytes = 0;
};

double Exposed(const v1::StepReport& report) {
  double seconds = 0;
  for (const auto& [name, pass] : report.passes()) seconds += pass.exposed_seconds();
  return seconds;
}

double Communication(const v1::StepReport& report) {
  double seconds = 0;
  for (const auto& [name, pass] : report.passes()) seconds += pass.communication_seconds();
  return seconds;
}

Measured Train(const Shapes& s, const v1::JobSpec& job, const v1::Plan& plan) {
  constexpr int kWarm = 1;  // chooses products, fills the pool
  MemoryLedger ledger;
  cuda::CudaBackend backend(BackendOptions(), ledger);
  const auto communicator = MakeLoopbackCommunicator(backend, 0, s.p, s.link_bytes_per_second);
  Measured out;
  out.workspace_bytes = ledger.current_total();
  const RandomTokens dataset(job);
  const auto trainer = Trainer::Create(job, plan, backend, *communicator, nullptr, &dataset);
  ThrowIfError(trainer.status());
  std::vector<double> seconds, exposed, communication;
  for (int i = -kWarm; i < s.steps; ++i) {
    const absl::StatusOr<v1::StepReport> report = (*trainer)->Step();
    ThrowIfError(report.status());
    out.model_flops = report->model_flops() / s.p;
    if (i < 0) continue;
    seconds.push_back(report->step_seconds());
    exposed.push_back(Exposed(*report));
    communication.push_back(Communication(*report));
  }
  out.seconds = std::max(MedianOf(seconds), 1e-9);
  out.exposed = MedianOf(exposed);
  out.communication = MedianOf(communication);
  out.peak_bytes = ledger.peak_total();
  out.reserved_bytes = backend.reserved_bytes();
  return out;
}

double Bounded(double rate) { return std::clamp(rate, 1.0, kUnlimited); }

v1::DeviceProfile Profile(const Shapes& s, const Rates& rates, const Measured& measured) {
  v1::DeviceProfile profile;
  profile.set_name("this device");
  profile.set_precision(v1::DeviceProfile::PRECISION_BF16);
  profile.set_memory_bytes(int64_t{1} << 40);
  profile.set_workspace_bytes(measured.workspace_bytes);
  profile.set_devices_per_node(s.p);
  for (v1::KernelRate* rate :
       {profile.mutable_gemm(), profile.mutable_attention_forward(), profile.mutable_attention_backward()})
    rate->set_bytes_per_second(kUnlimited);
  profile.mutable_attention_forward()->set_flops_per_second(Bounded(rates.attention_forward_flops));
  profile.mutable_attention_backward()->set_flops_per_second(Bounded(rates.attention_backward_flops));
  return profile;
}

/// Products at the ceiling, attention as measured or as the library alone, whichever is faster, the rest at the copy's
/// rate; starts and hops cost nothing.
v1::DeviceProfile CeilingProfile(const Shapes& s, const Rates& rates, const Measured& measured) {
  v1::DeviceProfile profile = Profile(s, rates, measured);
  profile.set_kernel_seconds(0);
  profile.mutable_gemm()->set_flops_per_second(Bounded(rates.product_flops));
  profile.mutable_attention_forward()->set_flops_per_second(
      Bounded(std::max(rates.attention_forward_flops, rates.peer_forward_flops)));
  profile.mutable_attention_backward()->set_flops_per_second(
      Bounded(std::max(rates.attention_backward_flops, rates.peer_backward_flops)));
  profile.set_bytes_per_second(Bounded(rates.copied_bytes));
  profile.mutable_link()->set_bytes_per_second(kUnlimited);
  NormalizeProfile(profile);
  return profile;
}

/// Everything at the rate that the backend's own operations had.
v1::DeviceProfile OwnProfile(const Shapes& s, const Rates& rates, const Measured& measured) {
  v1::DeviceProfile profile = Profile(s, rates, measured);
  const Fit products = FitRates(rates.products);
  profile.set_kernel_seconds(rates.kernel_seconds);
  profile.mutable_gemm()->set_flops_per_second(products.a > 0 ? Bounded(1 / products.a) : kUnlimited);
  profile.mutable_gemm()->set_bytes_per_second(products.b > 0 ? Bounded(1 / products.b) : kUnlimited);
  profile.set_bytes_per_second(Bounded(rates.moved_bytes));
  profile.mutable_link()->set_bytes_per_second(s.link_bytes_per_second > 0 ? s.link_bytes_per_second
                                                                           : kUnlimited);
  NormalizeProfile(profile);
  return profile;
}

v1::StepReport Simulated(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  absl::StatusOr<v1::StepReport> report = SimulateRank(job, plan, profile, 0);
  ThrowIfError(report.status());
  return *std::move(report);
}

void Goals(Report& report, const Measured& step, double composed, const v1::StepReport& sim, double mfu) {
  report.Goal("the loopback step at least 0.85 of the step composed from ceilings",
              absl::StrFormat("%.3f", composed / step.seconds));
  report.Goal("MFU at least 0.45 on H100 and H200", absl::StrFormat("%.3f", mfu));
  report.Goal("the simulator's step time within 15 %",
              absl::StrFormat("%+.1f %%", 100 * (sim.step_seconds() / step.seconds - 1)));
  report.Goal("its peak memory exact, library workspace excepted",
              absl::StrFormat("%+d bytes", sim.peak_bytes() - step.peak_bytes));
}

}  // namespace

void MeasureStep(const Shapes& s, const Rates& rates, Report& report) {
  const v1::JobSpec job = JobOf(s);
  v1::Plan plan = ResolvePlan(job, s.p);
  plan.set_precision(v1::DeviceProfile::PRECISION_BF16);
  report.Section(
      absl::StrFormat(
          "One training step: %d layers, rank 0 of %d, %d tokens, bf16, hops to itself at %.0f GB/s",
          s.layers, s.p, s.n * s.p, s.link_bytes_per_second * 1e-9),
      "ktokens/s", "measured time");
  const Measured step = Train(s, job, plan);
  const double composed = Simulated(job, plan, CeilingProfile(s, rates, step)).step_seconds();
  const v1::StepReport sim = Simulated(job, plan, OwnProfile(s, rates, step));
  const double tokens = static_cast<double>(s.n * s.p),
               mfu = step.model_flops / step.seconds / rates.product_flops;
  const auto add = [&](const char* name, double seconds, const std::string& note) {
    report.Add({name, seconds, tokens / seconds * 1e-3, seconds / step.seconds, note});
  };
  add("measured", step.seconds, absl::StrFormat("MFU %.3f of the square product", mfu));
  add("composed from the ceilings", composed, "simulated");
  add("predicted from this run's rates", sim.step_seconds(), "simulated");
  report.Say(PlanSettings(plan));
  report.Say(absl::StrFormat("communication %.1f ms, of which exposed %.1f ms; simulated %.1f ms and %.1f ms",
                             step.communication * 1e3, step.exposed * 1e3, Communication(sim) * 1e3,
                             Exposed(sim) * 1e3));
  report.Say(
      absl::StrFormat("peak memory by the ledger %d bytes (workspaces %d of it), simulated %d; pool has %d",
                      step.peak_bytes, step.workspace_bytes, sim.peak_bytes(), step.reserved_bytes));
  Goals(report, step, composed, sim, mfu);
}

}  // namespace metp::gpu_bench
