#include "server/planner/candidates.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/model/plan.h"
#include "worker/ring/partition.h"

namespace metp {

namespace {

constexpr int kSmallestTile = 2048, kLargestTile = 8192;  // rows; wide enough for a device's full rate

using Recompute = v1::ParallelSpec::Recompute;

/// 1, 2, 4, ..., most.
std::vector<int> Doubling(int most) {
  std::vector<int> values;
  for (int value = 1; value < most; value *= 2) values.push_back(value);
  values.push_back(most);
  return values;
}

std::vector<int> Degrees(const v1::JobSpec& job, int devices) {
  return job.parallel().degree() != 0 ? std::vector{job.parallel().degree()} : Doubling(std::max(1, devices));
}

std::vector<int> HeadGroupChoices(const v1::JobSpec& job) {
  const int asked = job.parallel().head_groups(), g = job.model().kv_heads();
  return asked != 0 ? std::vector{std::min(asked, g)} : Doubling(g);
}

/// Largest first; of those that hold all rows of a rank the smallest. On a CPU the fastest tile is known
/// (worker/model/plan.h) and small already.
std::vector<int> TileRowChoices(const v1::JobSpec& job, const v1::DeviceProfile& profile, int degree) {
  const int asked = job.parallel().tile_rows();
  if (asked != 0) return {std::max(asked, 0)};
  if (profile.precision() == v1::DeviceProfile::PRECISION_FP32) return {kAutoTileRows};
  const int64_t rows = job.train().micro_batch() * Zigzag{job.data().sequence_length(), degree}.MaxRows();
  std::vector<int> choices = {kSmallestTile};
  for (int tile = 2 * kSmallestTile; tile <= kLargestTile && choices.front() < rows; tile *= 2)
    choices.insert(choices.begin(), tile);
  return choices;
}

std::vector<Recompute> RecomputeChoices(const v1::JobSpec& job) {
  if (job.parallel().recompute() != v1::ParallelSpec::RECOMPUTE_AUTO) return {job.parallel().recompute()};
  return {v1::ParallelSpec::RECOMPUTE_NONE, v1::ParallelSpec::RECOMPUTE_SELECTIVE,
          v1::ParallelSpec::RECOMPUTE_FULL};
}

/// Whether what layers keep goes to the host.
std::vector<bool> OffloadChoices(const v1::JobSpec& job, const v1::DeviceProfile& profile) {
  const auto& asked = job.parallel().offload();
  const auto wants = [&](v1::ParallelSpec::Offload what) {
    return std::find(asked.begin(), asked.end(), what) != asked.end();
  };
  if (!wants(v1::ParallelSpec::OFFLOAD_AUTO)) return {wants(v1::ParallelSpec::OFFLOAD_ACTIVATIONS)};
  return profile.host_memory_bytes() > 0 ? std::vector{false, true} : std::vector{false};
}

}  // namespace

std::vector<v1::Plan> Candidates(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices) {
  std::vector<v1::Plan> plans;
  for (int degree : Degrees(job, devices)) {
    for (Recompute recompute : RecomputeChoices(job)) {
      for (int head_groups : HeadGroupChoices(job)) {
        for (int tile_rows : TileRowChoices(job, profile, degree)) {
          for (bool offload : OffloadChoices(job, profile)) {
            v1::Plan& plan = plans.emplace_back();
            plan.set_degree(degree);
            plan.set_recompute(recompute);
            plan.set_head_groups(head_groups);
            plan.set_tile_rows(tile_rows);
            plan.set_offload_activations(offload);
          }
        }
      }
    }
  }
  return plans;
}

std::vector<v1::Plan> LeastMemory(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices) {
  const std::vector<v1::Plan> all = Candidates(job, profile, devices);
  return {all.end() - static_cast<int64_t>(OffloadChoices(job, profile).size()), all.end()};
}

std::vector<Change> Changes(const v1::JobSpec& job, const v1::Plan& plan) {
  std::vector<Change> changes;
  const auto add = [&](const std::string& setting, auto&& change) {
    changes.push_back({setting, plan});
    change(changes.back().plan);
  };
  const int g = job.model().kv_heads();
  if (plan.head_groups() < g) {
    add(absl::StrCat("parallel.head_groups=", g), [&](v1::Plan& changed) { changed.set_head_groups(g); });
  }
  if (plan.tile_rows() == 0 || plan.tile_rows() > kSmallestTile) {
    add(absl::StrCat("parallel.tile_rows=", kSmallestTile),
        [](v1::Plan& changed) { changed.set_tile_rows(kSmallestTile); });
  }
  for (const Recompute recompute :
       {v1::ParallelSpec::RECOMPUTE_SELECTIVE, v1::ParallelSpec::RECOMPUTE_FULL}) {
    if (plan.recompute() == v1::ParallelSpec::RECOMPUTE_FULL || plan.recompute() == recompute) continue;
    add("parallel.recompute=" + RecomputeName(recompute),
        [&](v1::Plan& changed) { changed.set_recompute(recompute); });
  }
  add(plan.offload_activations() ? "parallel.offload=none" : "parallel.offload=activations",
      [&](v1::Plan& changed) { changed.set_offload_activations(!plan.offload_activations()); });
  for (int degree = 2 * plan.degree(); degree <= kMostDevices; degree *= 2) {
    add(absl::StrCat("parallel.degree=", degree), [&](v1::Plan& changed) { changed.set_degree(degree); });
  }
  // All settings at once, before more devices are asked for.
  const auto first_degree = std::find_if(changes.begin(), changes.end(), [&](const Change& change) {
    return change.plan.degree() != plan.degree();
  });
  if (first_degree - changes.begin() > 1) {
    v1::Plan all = plan;
    all.set_head_groups(g);
    all.set_recompute(v1::ParallelSpec::RECOMPUTE_FULL);
    all.set_offload_activations(true);
    if (all.tile_rows() == 0 || all.tile_rows() > kSmallestTile) all.set_tile_rows(kSmallestTile);
    std::string setting;
    for (auto change = changes.begin(); change != first_degree; ++change) {
      if (change->setting != "parallel.recompute=selective")
        absl::StrAppend(&setting, setting.empty() ? "" : " ", change->setting);
    }
    changes.insert(first_degree, {setting, all});
  }
  return changes;
}

}  // namespace metp
