#include "server/planner/candidates.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  const int rings = std::max(1, job.parallel().rings());
  if (job.parallel().degree() != 0) return {job.parallel().degree()};
  const int most = std::max({1, devices / rings, job.parallel().min_degree()});
  std::vector<int> degrees = Doubling(most);
  std::erase_if(degrees, [&](int degree) { return degree < job.parallel().min_degree(); });
  return degrees;
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

/// Rings that share out the step's micro-batches evenly and, with their ranks, find devices: one, and the most.
std::vector<int> RingChoices(const v1::JobSpec& job, int degree, int devices) {
  if (job.parallel().rings() != 0) return {job.parallel().rings()};
  const int batches = job.train().sequences_per_step() / job.train().micro_batch();
  int most = std::max(1, std::min(batches, devices / degree));
  while (batches % most != 0) --most;
  return most == 1 ? std::vector{1} : std::vector{1, most};
}

std::vector<Recompute> RecomputeChoices(const v1::JobSpec& job) {
  if (job.parallel().recompute() != v1::ParallelSpec::RECOMPUTE_AUTO) return {job.parallel().recompute()};
  return {v1::ParallelSpec::RECOMPUTE_NONE, v1::ParallelSpec::RECOMPUTE_SELECTIVE,
          v1::ParallelSpec::RECOMPUTE_FULL};
}

bool TileMayShrink(const v1::Plan& plan) { return plan.tile_rows() == 0 || plan.tile_rows() > kSmallestTile; }

/// What goes to the host, from nothing to everything.
struct Offloaded {
  bool activations = false, optimizer = false;
};
constexpr Offloaded kEveryOffload[] = {{false, false}, {true, false}, {false, true}, {true, true}};

std::vector<Offloaded> OffloadChoices(const v1::JobSpec& job, const v1::DeviceProfile& profile) {
  const auto& asked = job.parallel().offload();
  const auto wants = [&](v1::ParallelSpec::Offload what) {
    return std::find(asked.begin(), asked.end(), what) != asked.end();
  };
  if (!wants(v1::ParallelSpec::OFFLOAD_AUTO))
    return {{wants(v1::ParallelSpec::OFFLOAD_ACTIVATIONS), wants(v1::ParallelSpec::OFFLOAD_OPTIMIZER)}};
  if (profile.host_memory_bytes() == 0 || profile.one_memory()) return {{}};
  return {std::begin(kEveryOffload), std::end(kEveryOffload)};
}

void SetOffload(v1::Plan& plan, const Offloaded& offloaded) {
  plan.set_offload_activations(offloaded.activations);
  plan.set_offload_optimizer(offloaded.optimizer);
}

/// The job file's setting for it.
std::string OffloadSetting(const Offloaded& offloaded) {
  const char* value = offloaded.activations && offloaded.optimizer ? "[activations, optimizer]"
                      : offloaded.activations                      ? "activations"
                      : offloaded.optimizer                        ? "optimizer"
                                                                   : "none";
  return absl::StrCat("parallel.offload=", value);
}

}  // namespace

std::vector<v1::Plan> Candidates(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices) {
  std::vector<v1::Plan> plans;
  v1::Plan plan;
  if (profile.precision() == v1::DeviceProfile::PRECISION_BF16) plan.set_precision(profile.precision());
  for (int degree : Degrees(job, devices)) {
    plan.set_degree(degree);
    for (int rings : RingChoices(job, degree, devices)) {
      plan.set_rings(rings);
      for (Recompute recompute : RecomputeChoices(job)) {
        plan.set_recompute(recompute);
        for (int head_groups : HeadGroupChoices(job)) {
          plan.set_head_groups(head_groups);
          for (int tile_rows : TileRowChoices(job, profile, degree)) {
            plan.set_tile_rows(tile_rows);
            for (const Offloaded& offloaded : OffloadChoices(job, profile)) {
              SetOffload(plan, offloaded);
              plans.push_back(plan);
            }
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

namespace {

/// All settings at once, where that is more than one.
void AddAllSettings(const v1::JobSpec& job, const v1::Plan& plan, std::vector<Change>& changes) {
  const int g = job.model().kv_heads();
  std::vector<std::string> settings;
  v1::Plan all = plan;
  if (plan.head_groups() < g) {
    all.set_head_groups(g);
    settings.push_back(absl::StrCat("parallel.head_groups=", g));
  }
  if (TileMayShrink(plan)) {
    all.set_tile_rows(kSmallestTile);
    settings.push_back(absl::StrCat("parallel.tile_rows=", kSmallestTile));
  }
  if (plan.recompute() != v1::ParallelSpec::RECOMPUTE_FULL) {
    all.set_recompute(v1::ParallelSpec::RECOMPUTE_FULL);
    settings.emplace_back("parallel.recompute=full");
  }
  if (!plan.offload_activations() || !plan.offload_optimizer()) {
    SetOffload(all, {true, true});
    settings.push_back(OffloadSetting({true, true}));
  }
  if (settings.size() > 1) changes.push_back({absl::StrJoin(settings, " "), all});
}

}  // namespace

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
  if (TileMayShrink(plan)) {
    add(absl::StrCat("parallel.tile_rows=", kSmallestTile),
        [](v1::Plan& changed) { changed.set_tile_rows(kSmallestTile); });
  }
  for (const Recompute recompute :
       {v1::ParallelSpec::RECOMPUTE_SELECTIVE, v1::ParallelSpec::RECOMPUTE_FULL}) {
    if (plan.recompute() == v1::ParallelSpec::RECOMPUTE_FULL || plan.recompute() == recompute) continue;
    add("parallel.recompute=" + RecomputeName(recompute),
        [&](v1::Plan& changed) { changed.set_recompute(recompute); });
  }
  for (const Offloaded& offloaded : kEveryOffload) {
    if (offloaded.activations == plan.offload_activations() &&
        offloaded.optimizer == plan.offload_optimizer())
      continue;
    if (!offloaded.activations && !offloaded.optimizer) continue;  // last: below
    add(OffloadSetting(offloaded), [&](v1::Plan& changed) { SetOffload(changed, offloaded); });
  }
  if (plan.offload_activations() || plan.offload_optimizer())
    add(OffloadSetting({}), [](v1::Plan& changed) { SetOffload(changed, {}); });
  AddAllSettings(job, plan, changes);
  for (int degree = 2 * plan.degree(); degree <= kMostDevices; degree *= 2) {
    add(absl::StrCat("parallel.degree=", degree), [&](v1::Plan& changed) { changed.set_degree(degree); });
  }
  return changes;
}

}  // namespace metp
