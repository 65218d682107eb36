#include "worker/rank/run_report.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/model/plan.h"
#include "worker/ring/passes.h"

namespace metp {

namespace {

using Json = nlohmann::ordered_json;

/// One rank's passes over all its steps.
Json Passes(const std::vector<v1::StepReport>& steps) {
  Json passes = Json::object();
  for (int i = 0; i < kPasses; ++i) {
    const std::string name(PassName(static_cast<Pass>(i)));
    PassSeconds total;
    for (const v1::StepReport& step : steps) {
      const auto found = step.passes().find(name);
      if (found == step.passes().end()) continue;
      total.compute += found->second.compute_seconds();
      total.communication += found->second.communication_seconds();
      total.exposed += found->second.exposed_seconds();
      total.skew += found->second.skew_seconds();
    }
    passes[name] = {{"compute_seconds", total.compute},
                    {"communication_seconds", total.communication},
                    {"exposed_seconds", total.exposed},
                    {"skew_seconds", total.skew}};
  }
  return passes;
}

/// What one rank's host memory cost over all its steps.
Json Host(const std::vector<v1::StepReport>& steps) {
  v1::HostTimes total;
  for (const v1::StepReport& step : steps) {
    total.set_copy_seconds(total.copy_seconds() + step.host().copy_seconds());
    total.set_update_seconds(total.update_seconds() + step.host().update_seconds());
    total.set_exposed_seconds(total.exposed_seconds() + step.host().exposed_seconds());
  }
  return {{"copy_seconds", total.copy_seconds()},
          {"update_seconds", total.update_seconds()},
          {"exposed_seconds", total.exposed_seconds()}};
}

Json Rank(const std::vector<v1::StepReport>& steps) {
  const v1::StepReport last = steps.empty() ? v1::StepReport() : steps.back();
  Json categories = Json::object();
  for (int i = 0; i < kMemoryCategories; ++i) {
    const std::string name(MemoryCategoryName(static_cast<MemoryCategory>(i)));
    const auto found = last.peak_bytes_by_category().find(name);
    categories[name] = found == last.peak_bytes_by_category().end() ? 0 : found->second;
  }
  Json tags = Json::object();
  for (const auto& [tag, bytes] : last.peak_bytes_by_tag()) tags[tag] = bytes;
  return {{"peak_bytes", last.peak_bytes()},
          {"peak_bytes_by_category", categories},
          {"peak_bytes_by_tag", tags},
          {"host_peak_bytes", last.host_peak_bytes()},
          {"sent_bytes", last.sent_bytes()},
          {"passes", Passes(steps)},
          {"host", Host(steps)}};
}

Json Overlap(const Json& ranks) {
  if (ranks.size() < 2) return nullptr;
  double communication = 0, exposed = 0;
  for (const Json& rank : ranks) {
    for (const auto& [name, pass] : rank.at("passes").items()) {
      communication += pass.at("communication_seconds").get<double>();
      exposed += pass.at("exposed_seconds").get<double>();
    }
  }
  if (communication <= 0) return nullptr;
  return std::clamp(1 - exposed / communication, 0.0, 1.0);
}

}  // namespace

Json RunReport(const RunRequest& request, const RunRecord& record) {
  const std::vector<v1::StepReport>& steps = record.steps.at(0);
  Json report = {{"name", request.job.name()}, {"first_step", steps.empty() ? 1 : steps.front().step()}};
  const bool simulated = !record.simulated_on.empty();
  if (simulated) report["simulated_on"] = record.simulated_on;
  for (const char* key : {"losses", "grad_norms", "step_seconds"}) report[key] = Json::array();
  double seconds = 0, tokens = 0, flops = 0;
  for (const v1::StepReport& step : steps) {
    if (!simulated) {
      report["losses"].push_back(step.loss());
      report["grad_norms"].push_back(step.grad_norm());
    }
    report["step_seconds"].push_back(step.step_seconds());
    seconds += step.step_seconds();
    tokens += static_cast<double>(step.tokens());
    flops += step.model_flops();
  }
  const double sgemm =
      std::accumulate(record.sgemm_flops_per_second.begin(), record.sgemm_flops_per_second.end(), 0.0);
  report["tokens_per_second"] = seconds > 0 ? tokens / seconds : 0;
  report["sgemm_flops_per_second"] = sgemm;
  report["mfu"] = seconds > 0 && sgemm > 0 ? flops / seconds / sgemm : 0;
  Json ranks = Json::array();
  for (const auto& rank : record.steps) ranks.push_back(Rank(rank));
  report["overlap"] = Overlap(ranks);
  report["ranks"] = std::move(ranks);
  report["device"] = KindOf(request.plan) == v1::JobSpec::DEVICE_GPU ? "gpu" : "cpu";
  report["precision"] = request.plan.precision() == v1::DeviceProfile::PRECISION_BF16 ? "bf16" : "fp32";
  report["degree"] = request.plan.degree();
  report["rings"] = RingsOf(request.plan);
  report["head_groups"] = request.plan.head_groups();
  report["tile_rows"] = request.plan.tile_rows();
  report["recompute"] = RecomputeName(request.plan.recompute());
  report["offload_activations"] = request.plan.offload_activations();
  report["offload_optimizer"] = request.plan.offload_optimizer();
  report["threads"] = request.threads;
  report["notes"] = request.plan.notes();
  return report;
}

namespace {

/// What MFU is measured against.
std::string Rate(const Json& report) {
  if (report.contains("simulated_on")) return "peak";
  if (report.at("device") == "cpu") return "sgemm";
  return absl::StrCat("cuBLASLt, ", report.at("precision").get<std::string>());
}

}  // namespace

std::string RunSummary(const Json& report) {
  std::string out;
  const bool simulated = report.contains("simulated_on");
  if (!simulated && report.at("losses").empty()) return "nothing was left to do: all steps are done\n";
  if (simulated) {
    out = absl::StrFormat("simulated on %s: %.2f s a step", report.at("simulated_on").get<std::string>(),
                          report.at("step_seconds").front().get<double>());
  } else {
    out = absl::StrFormat("loss %.4f -> %.4f", report.at("losses").front().get<double>(),
                          report.at("losses").back().get<double>());
  }
  out += absl::StrFormat(", %.0f tokens/s, MFU %.2f of %.0f GFLOP/s %s\n",
                         report.at("tokens_per_second").get<double>(), report.at("mfu").get<double>(),
                         report.at("sgemm_flops_per_second").get<double>() / 1e9, Rate(report).c_str());
  if (!report.at("overlap").is_null()) {
    out += absl::StrFormat("communication overlapped: %.1f %%\n", 100 * report.at("overlap").get<double>());
  }
  int rank = 0;
  for (const Json& r : report.at("ranks")) {
    out += absl::StrFormat("rank %d: peak %.1f MiB (", rank++, r.at("peak_bytes").get<double>() / (1 << 20));
    std::string separator;
    for (const auto& [name, bytes] : r.at("peak_bytes_by_category").items()) {
      out += absl::StrFormat("%s%s %.1f", separator, name, bytes.get<double>() / (1 << 20));
      separator = ", ";
    }
    out += ")\n";
  }
  return out;
}

}  // namespace metp
