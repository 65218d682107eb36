#include "server/planner/planner.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status_macros.h"
#include "server/planner/candidates.h"
#include "server/planner/overlap.h"
#include "worker/backend/sim/profile.h"
#include "worker/model/config.h"
#include "worker/model/plan.h"
#include "worker/rank/simulate.h"

namespace metp {

namespace {

// Kernels that are simulated while somebody waits for an answer: of one plan, and of a search.
constexpr double kMostKernels = 1e7, kMostSearched = 2e8;

/// What the search looks at of one candidate: rank 0, which holds the largest parts of the weights, and of the
/// tokens where every rank holds the same.
struct Cost {
  int64_t peak_bytes = 0, host_bytes = 0;
  double step_seconds = 0;
  bool at_least = false;  // a lower bound of the bytes alone: not simulated
};

absl::StatusOr<Cost> CostOf(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  METP_ASSIGN_OR_RETURN(const v1::StepReport report, SimulateRank(job, plan, profile, 0));
  return Cost{report.peak_bytes(), report.host_peak_bytes(), report.step_seconds()};
}

std::string Words(const v1::Plan& plan) {
  return absl::StrCat("degree ", plan.degree(), ", ", PlanSettings(plan));
}

/// A rank's weights, masters, gradients and moments on the device.
double StateBytes(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  const bool narrow = profile.precision() == v1::DeviceProfile::PRECISION_BF16;
  const double everywhere = narrow ? 6 : 8;                              // compute weights and gradients
  const double shared = plan.offload_optimizer() ? 0 : narrow ? 12 : 8;  // over rings
  return (everywhere + shared / RingsOf(plan)) * MatrixParameters(MakeModelConfig(job.model())) /
         plan.degree();
}

/// What a rank holds at the very least: its state, and what entered each layer, where the plan keeps it.
Cost LeastCost(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  const bool narrow = profile.precision() == v1::DeviceProfile::PRECISION_BF16;
  const double rows = 1.0 * job.train().micro_batch() * job.data().sequence_length() / plan.degree();
  const double X = rows * job.model().hidden() * (narrow ? 2 : 4);
  const int on_host = plan.offload_activations() ? job.model().layers() - 1 : 0;
  const double parameters = MatrixParameters(MakeModelConfig(job.model())) / RanksOf(plan);
  const auto bytes = [](double x) { return static_cast<int64_t>(std::min(x, 4e18)); };
  Cost least;
  least.peak_bytes = bytes(StateBytes(job, plan, profile) + X * (job.model().layers() - on_host));
  least.host_bytes = bytes(X * on_host + (plan.offload_optimizer() ? 12 * parameters : 0));
  least.at_least = true;
  return least;
}

/// The plan's device, of which only the memory is known: good for counting bytes, not for seconds.
v1::DeviceProfile DeviceWith(int64_t memory_bytes, const v1::Plan& plan) {
  v1::DeviceProfile profile;
  profile.set_precision(plan.precision() == v1::DeviceProfile::PRECISION_BF16
                            ? v1::DeviceProfile::PRECISION_BF16
                            : v1::DeviceProfile::PRECISION_FP32);
  const bool gpu = plan.device() == v1::JobSpec::DEVICE_GPU;
  profile.set_one_memory(!gpu);
  profile.set_memory_bytes(memory_bytes);
  profile.set_reserved_bytes(gpu ? ReservedBytesOf(memory_bytes) : 0);
  if (!gpu) profile.set_workspace_bytes(0);
  profile.set_bytes_per_second(1);
  for (v1::KernelRate* rate :
       {profile.mutable_gemm(), profile.mutable_attention_forward(), profile.mutable_attention_backward()})
    rate->set_flops_per_second(1);
  profile.mutable_link()->set_bytes_per_second(1);
  profile.set_devices_per_node(1);
  NormalizeProfile(profile);
  return profile;
}

constexpr int kWidestFlashHead = 256;  // of the kernels in worker/backend/cuda

/// About how many kernels a simulated step has.
double Kernels(const v1::JobSpec& job, const v1::Plan& plan) {
  const double rows = 1.0 * job.train().micro_batch() * job.data().sequence_length() / plan.degree();
  const double tiles = plan.tile_rows() == 0 ? 1 : 1 + rows / plan.tile_rows();
  const int batches = job.train().sequences_per_step() / job.train().micro_batch() / RingsOf(plan);
  return std::min(batches, 3) * 1.0 * job.model().layers() * plan.degree() *  // of more than two, one and two
         (20.0 * tiles + 20.0 * plan.head_groups() * job.train().micro_batch());
}

std::string Seconds(double seconds) {
  return seconds < 100 ? absl::StrFormat("%.4g s", seconds) : absl::StrFormat("%.0f s", seconds);
}

std::string GB(double bytes) {
  return bytes < 1e8 ? absl::StrFormat("%.3g MB", bytes / 1e6) : absl::StrFormat("%.1f GB", bytes / 1e9);
}

bool Fits(const Cost& cost, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  return FindsRoom(profile, RanksOf(plan), cost.peak_bytes, cost.host_bytes);
}

/// CostOf, or a lower bound that does not fit already, or one of a step that would take too long to simulate.
absl::StatusOr<Cost> CostWithin(const v1::JobSpec& job, const v1::Plan& plan,
                                const v1::DeviceProfile& profile, const SearchLimits& limits) {
  const Cost least = LeastCost(job, plan, profile);
  if (!Fits(least, plan, profile) || Kernels(job, plan) > limits.kernels) return least;
  return CostOf(job, plan, profile);
}

/// The message of a job that no candidate lets fit; `smallest` is the one that comes closest.
absl::Status DoesNotFit(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices,
                        const v1::Plan& smallest, const Cost& cost, const SearchLimits& limits) {
  const bool one = profile.one_memory(), host = !one && cost.peak_bytes <= UsableBytes(profile);
  const int64_t needed = one ? cost.peak_bytes + cost.host_bytes : host ? cost.host_bytes : cost.peak_bytes;
  std::string text = absl::StrCat(
      "data.sequence_length: found ", job.data().sequence_length(), ", with which the job needs ",
      cost.at_least ? "at least " : "", GB(static_cast<double>(needed)),
      host ? " of host memory for each device (" : " on each device (", Words(smallest), "), and a ",
      profile.name(), " has ",
      GB(static_cast<double>(host ? ShareOfHost(profile, RanksOf(smallest)).memory_bytes
                                  : UsableBytes(profile))),
      " to give");
  METP_ASSIGN_OR_RETURN(const LongestSequence longest, MaxSequence(job, profile, devices, limits));
  if (longest.tokens > 0) {
    absl::StrAppend(&text, "; the longest data.sequence_length that fits is ", longest.tokens, " (",
                    Words(longest.plan), ")");
  } else {
    absl::StrAppend(&text, "; no sequence fits, however short");
  }
  if (const std::string way = CheapestWayToFit(job, smallest, profile, limits); !way.empty())
    absl::StrAppend(&text, "; it fits with ", way);
  return absl::ResourceExhaustedError(text);
}

/// The message of a job that must overlap fully and does not under any plan; `plan` is one of them.
absl::Status DoesNotOverlap(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  const int64_t from = SmallestFullOverlapSequence(job, plan, profile);
  return absl::FailedPreconditionError(absl::StrCat(
      "parallel.require_full_overlap: found true, but communication does not hide fully behind computation "
      "on ",
      profile.name(), " (", Words(plan), "): expected ",
      from == 0 ? "" : absl::StrCat("at least ", from, " tokens in data.sequence_length, or "),
      "parallel.degree at most ", LargestFullOverlapDegree(job, plan, profile)));
}

}  // namespace

v1::JobSpec WithSequence(const v1::JobSpec& job, int64_t tokens) {
  v1::JobSpec other = job;
  other.mutable_data()->set_sequence_length(static_cast<int32_t>(tokens));
  const bool follows = job.model().max_positions() == job.data().sequence_length();
  if (follows || job.model().max_positions() < tokens)
    other.mutable_model()->set_max_positions(static_cast<int32_t>(tokens));
  return other;
}

absl::Status CheckMemory(const v1::JobSpec& job, const v1::Plan& plan, int64_t memory_bytes) {
  const v1::DeviceProfile profile = DeviceWith(memory_bytes, plan);
  const double usable = static_cast<double>(UsableBytes(profile));
  double needed = StateBytes(job, plan, profile);
  if (needed <= usable && Kernels(job, plan) <= kMostKernels) {
    METP_ASSIGN_OR_RETURN(const Cost cost, CostOf(job, plan, profile));
    needed = static_cast<double>(cost.peak_bytes + (profile.one_memory() ? cost.host_bytes : 0));
  }
  if (needed <= usable) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parallel.degree: found ", plan.degree(), ", with which each rank needs at least ", GB(needed),
      "; of the ", RanksOf(plan), RanksOf(plan) == 1 ? " worker" : " workers",
      " with most memory the smallest has ", GB(usable), profile.reserved_bytes() > 0 ? " to give" : "",
      "; expected more ranks, a shorter data.sequence_length or a smaller model"));
}

absl::StatusOr<Choice> ChoosePlan(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices,
                                  const SearchLimits& limits) {
  std::vector<v1::Plan> candidates = Candidates(job, profile, devices);
  if (job.parallel().require_full_overlap()) {
    const v1::Plan last = candidates.back();
    std::erase_if(candidates,
                  [&](const v1::Plan& plan) { return !FullOverlap(OverlapOf(job, plan, profile)); });
    if (candidates.empty()) return DoesNotOverlap(job, last, profile);
  }
  using Costed = std::pair<Cost, v1::Plan>;
  std::vector<Costed> all;
  for (const v1::Plan& plan : candidates) {
    METP_ASSIGN_OR_RETURN(const Cost cost, CostWithin(job, plan, profile, limits));
    all.emplace_back(cost, plan);
  }
  // Of equal ones (bounds) the last: candidates are sorted by how much they save.
  const Costed smallest = *std::min_element(all.rbegin(), all.rend(), [](const Costed& a, const Costed& b) {
    return a.first.peak_bytes < b.first.peak_bytes;
  });
  std::erase_if(all, [&](const Costed& plan) { return !Fits(plan.first, plan.second, profile); });
  const auto unknown =
      std::find_if(all.begin(), all.end(), [](const Costed& plan) { return plan.first.at_least; });
  const bool too_long = unknown != all.end();  // to simulate: it may fit, or not
  std::erase_if(all, [](const Costed& plan) { return plan.first.at_least; });
  std::stable_sort(all.begin(), all.end(), [](const Costed& a, const Costed& b) {
    return a.first.step_seconds < b.first.step_seconds;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    Choice choice{all[i].second, {}};
    METP_ASSIGN_OR_RETURN(choice.prediction, Predict(job, choice.plan, profile));
    if (!choice.prediction.fits()) continue;  // another rank's share is larger
    if (i + 1 < all.size()) {
      choice.plan.add_notes(absl::StrCat(
          "chosen of ", candidates.size(), " plans; the next fastest: ", Words(all[i + 1].second), ", ",
          Seconds(all[i + 1].first.step_seconds), " a step against ", Seconds(all[i].first.step_seconds)));
    }
    return choice;
  }
  if (too_long) return absl::CancelledError("no plan that can be simulated within the limits fits");
  return DoesNotFit(job, profile, devices, smallest.second, smallest.first, limits);
}

namespace {

/// Whether as many workers as the plan has ranks have the memory that each needs.
absl::Status CheckWorkers(const v1::JobSpec& job, const v1::Plan& plan, const Workers& workers) {
  const auto ranks = static_cast<size_t>(RanksOf(plan));
  if (ranks > workers.memory_bytes.size()) return absl::OkStatus();  // not all have said
  return CheckMemory(job, plan, workers.memory_bytes[ranks - 1]);
}

/// ChoosePlan, and what the user should know about the figures.
absl::StatusOr<Choice> ChooseOn(const v1::JobSpec& job, const Workers& workers) {
  v1::DeviceProfile profile = *workers.profile;
  const bool far_unknown = !profile.has_node_link();
  if (far_unknown) *profile.mutable_node_link() = profile.link();
  METP_ASSIGN_OR_RETURN(Choice choice,
                        ChoosePlan(job, profile, workers.count, {kMostKernels, workers.count}));
  if (workers.profiled < workers.count) {
    choice.plan.add_notes(absl::StrCat("planned by the profiles of ", workers.profiled, " of ", workers.count,
                                       " workers: the others have none"));
  }
  if (far_unknown && RanksOf(choice.plan) > profile.devices_per_node()) {
    if (job.parallel().require_full_overlap() && choice.plan.degree() > profile.devices_per_node()) {
      return absl::FailedPreconditionError(
          "parallel.require_full_overlap: found true, expected false: links between machines have not been "
          "measured "
          "yet, which a first job over them does");
    }
    choice.plan.add_notes(
        "links between machines have not been measured yet and are taken to be as fast as those inside one");
  }
  return choice;
}

}  // namespace

absl::StatusOr<Choice> PlanOn(const v1::JobSpec& job, const Workers& workers) {
  const bool gpu = workers.device == v1::JobSpec::DEVICE_GPU;
  if (gpu && job.model().head_dim() > kWidestFlashHead &&
      job.parallel().attention() != v1::ParallelSpec::ATTENTION_TILED) {
    return absl::FailedPreconditionError(
        absl::StrCat("model.head_dim: found ", job.model().head_dim(), ", expected at most ",
                     kWidestFlashHead, " with flash attention on GPUs; parallel.attention=tiled takes any"));
  }
  v1::Plan even = ResolvePlan(job, workers.count);
  even.set_device(workers.device);
  if (gpu && !(workers.profile && workers.profile->precision() == v1::DeviceProfile::PRECISION_FP32))
    even.set_precision(v1::DeviceProfile::PRECISION_BF16);
  if (job.parallel().degree() == 0 && even.degree() < job.parallel().min_degree()) {
    return absl::FailedPreconditionError(absl::StrCat("parallel.min_degree: found ",
                                                      job.parallel().min_degree(), ", expected at most ",
                                                      even.degree(), ", by ", workers.limit));
  }
  if (RanksOf(even) > workers.count) {
    const bool rings = RingsOf(even) > 1;
    return absl::FailedPreconditionError(
        absl::StrCat(rings ? "parallel.rings: found " : "parallel.degree: found ",
                     rings ? absl::StrCat(RingsOf(even), " rings of ", even.degree(), " ranks")
                           : absl::StrCat(even.degree()),
                     ", expected at most ", workers.count, rings ? " ranks" : "", ", ", workers.limit));
  }
  bool simulated = workers.profile.has_value();
  if (simulated) {
    double kernels = 0;
    for (const v1::Plan& plan : Candidates(job, *workers.profile, workers.count))
      kernels += Kernels(job, plan);
    simulated = kernels <= kMostSearched;
  }
  if (simulated) {
    absl::StatusOr<Choice> choice = ChooseOn(job, workers);
    if (choice.ok()) {
      choice->plan.set_device(workers.device);
      METP_RETURN_IF_ERROR(CheckWorkers(job, choice->plan, workers));
    }
    if (!absl::IsCancelled(choice.status())) return choice;
  }
  const char* why = workers.profile ? "the step has too many kernels to simulate while you wait"
                                    : "no worker has a device profile";
  if (job.parallel().require_full_overlap() && even.degree() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "parallel.require_full_overlap: found true, expected false: it cannot be checked here, since ", why,
        "; metpctl plan checks it against a profile"));
  }
  METP_RETURN_IF_ERROR(CheckWorkers(job, even, workers));
  Choice choice{even, {}};
  choice.plan.add_notes(absl::StrCat("planned by even split: ", why));
  return choice;
}

absl::StatusOr<int64_t> MaxSequenceOf(const v1::JobSpec& job, const v1::Plan& plan,
                                      const v1::DeviceProfile& profile, const SearchLimits& limits) {
  const int64_t unit = int64_t{2} * plan.degree();  // of the zigzag split: every rank holds the same
  auto fits = [&](int64_t units) -> absl::StatusOr<bool> {
    METP_ASSIGN_OR_RETURN(const Cost cost,
                          CostWithin(WithSequence(job, units * unit), plan, profile, limits));
    return !cost.at_least && Fits(cost, plan, profile);
  };
  int64_t fit = 0, beyond = 1;
  while (beyond <= kMostTokens / unit) {  // double, then bisect
    METP_ASSIGN_OR_RETURN(const bool ok, fits(beyond));
    if (!ok) break;
    fit = beyond;
    beyond *= 2;
  }
  beyond = std::min(beyond, kMostTokens / unit + 1);
  while (beyond - fit > 1) {
    const int64_t middle = fit + (beyond - fit) / 2;
    METP_ASSIGN_OR_RETURN(const bool ok, fits(middle));
    (ok ? fit : beyond) = middle;
  }
  return fit * unit;
}

absl::StatusOr<LongestSequence> MaxSequence(const v1::JobSpec& job, const v1::DeviceProfile& profile,
                                            int devices, const SearchLimits& limits) {
  LongestSequence longest;
  for (const v1::Plan& plan : LeastMemory(job, profile, devices)) {
    METP_ASSIGN_OR_RETURN(const int64_t tokens, MaxSequenceOf(job, plan, profile, limits));
    if (longest.plan.degree() == 0 || tokens > longest.tokens) longest = {tokens, plan};
  }
  return longest;
}

std::string CheapestWayToFit(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile,
                             const SearchLimits& limits) {
  for (const Change& change : Changes(job, plan)) {
    if (RanksOf(change.plan) > std::max(limits.devices, RanksOf(plan))) continue;
    if (Kernels(job, change.plan) > kMostKernels) continue;  // a hint is not worth minutes
    const absl::StatusOr<Cost> cost = CostWithin(job, change.plan, profile, limits);
    if (cost.ok() && !cost->at_least && Fits(*cost, change.plan, profile))
      return absl::StrCat(change.setting, " (", Seconds(cost->step_seconds), " a step)");
  }
  return "";
}

}  // namespace metp
