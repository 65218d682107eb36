#include "client/plan_table.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "worker/model/plan.h"
#include "worker/telemetry/ledger.h"

namespace metp {
namespace {

int64_t CategoryBytes(const v1::Prediction& prediction, int category) {
  const auto found = prediction.peak_bytes_by_category().find(
      std::string(MemoryCategoryName(static_cast<MemoryCategory>(category))));
  return found == prediction.peak_bytes_by_category().end() ? 0 : found->second;
}

nlohmann::ordered_json CategoriesJson(const v1::Prediction& prediction) {
  nlohmann::ordered_json categories = nlohmann::ordered_json::object();
  for (int i = 0; i < kMemoryCategories; ++i)
    categories[std::string(MemoryCategoryName(static_cast<MemoryCategory>(i)))] =
        CategoryBytes(prediction, i);
  return categories;
}

std::string MemoryText(const v1::Prediction& prediction) {
  std::vector<std::vector<std::string>> rows = {{"MEMORY", "BYTES", "SHARE"}};
  const auto share = [&](int64_t bytes) {
    return Percent(static_cast<double>(bytes) / static_cast<double>(prediction.usable_bytes()));
  };
  for (int i = 0; i < kMemoryCategories; ++i) {
    const int64_t bytes = CategoryBytes(prediction, i);
    rows.push_back({std::string(MemoryCategoryName(static_cast<MemoryCategory>(i))),
                    Bytes(static_cast<double>(bytes)), share(bytes)});
  }
  rows.push_back(
      {"peak", Bytes(static_cast<double>(prediction.peak_bytes())), share(prediction.peak_bytes())});
  const std::string host =
      prediction.host_peak_bytes() == 0
          ? ""
          : absl::StrCat(", with ", Bytes(static_cast<double>(prediction.host_peak_bytes())), " of its ",
                         Bytes(static_cast<double>(prediction.host_usable_bytes())), " of host memory");
  return absl::StrCat(Table(rows, {1, 2}), prediction.fits() ? "It fits into " : "IT DOES NOT FIT into ",
                      Bytes(static_cast<double>(prediction.usable_bytes())), " a device", host, ".\n");
}

std::string HostText(const v1::Prediction& prediction) {
  const v1::HostTimes& host = prediction.host();
  if (host.copy_seconds() + host.update_seconds() == 0) return "";
  return absl::StrCat("Host memory: copies ", Duration(host.copy_seconds()), ", optimizer ",
                      Duration(host.update_seconds()), "; waiting for them ",
                      Duration(host.exposed_seconds()), ", ",
                      Percent(host.exposed_seconds() / prediction.step_seconds()), " of the step.\n");
}

std::string PassText(const v1::Prediction& prediction) {
  if (prediction.passes().empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"PASS", "COMPUTE/HOP", "COMM/HOP", "HIDES", "COMPUTE", "COMM", "EXPOSED", "SIMULATED"}};
  for (const v1::PassPrediction& pass : prediction.passes()) {
    const auto verdict = [&](bool hides) { return !pass.verdict() ? "-" : hides ? "yes" : "NO"; };
    const auto hop = [&](double seconds) {
      return pass.hop_communication_seconds() == 0 ? "-" : Short(1e3 * seconds) + " ms";
    };
    rows.push_back({pass.pass(), hop(pass.hop_compute_seconds()), hop(pass.hop_communication_seconds()),
                    verdict(pass.hides()), Duration(pass.compute_seconds()),
                    Duration(pass.communication_seconds()), Duration(pass.exposed_seconds()),
                    verdict(pass.simulation_hides())});
  }
  return absl::StrCat(
      "\n", Table(rows, {1, 2, 4, 5, 6}),
      "HIDES: one hop in the middle of the pass against the computing beside it, in closed form. "
      "SIMULATED: at least\nthree quarters of the pass's simulated hops were hidden. The embedding "
      "and the exchange between rings have nothing to hide behind.\n");
}

std::string OverlapText(const PlanAnswer& answer) {
  const v1::Prediction& prediction = answer.prediction;
  if (answer.plan.degree() < 2) return "";
  std::string text = prediction.full_overlap() ? "\nCommunication hides fully behind computation.\n"
                                               : "\nCommunication does not hide fully behind computation.\n";
  if (prediction.smallest_sequence() == 0) {
    absl::StrAppend(&text, "With ", answer.plan.degree(),
                    " ranks it never does, however long the sequence.\n");
  } else {
    absl::StrAppend(&text, "With ", answer.plan.degree(), " ranks it does from ",
                    Grouped(prediction.smallest_sequence()), " tokens on; at ",
                    Grouped(answer.job.data().sequence_length()), " tokens, with up to ",
                    prediction.largest_degree(), prediction.largest_degree() == 1 ? " rank.\n" : " ranks.\n");
  }
  return text;
}

bool PeerFits(const PlanAnswer& answer, const PeerEstimate& peer) {
  return peer.possible && peer.peak_bytes <= answer.prediction.usable_bytes() &&
         peer.host_bytes <= answer.prediction.host_usable_bytes();
}

std::string CompareText(const PlanAnswer& answer) {
  if (answer.peers.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"METHOD", "MEANS", "LONGEST", "PEAK", "FITS", "STEP"}};
  const auto add = [&](const std::string& method, bool equal, int64_t longest, int64_t peak, bool fits,
                       double seconds) {
    rows.push_back({method, equal ? "as planned" : "none", Grouped(longest), Bytes(static_cast<double>(peak)),
                    fits ? "yes" : "NO", Duration(seconds)});
  };
  add("METP (simulated)", true, answer.plan_max_sequence, answer.prediction.peak_bytes(),
      answer.prediction.fits(), answer.prediction.step_seconds());
  std::map<std::string, std::vector<std::string>> impossible;  // by reason
  for (const PeerEstimate& peer : answer.peers) {
    if (peer.possible) {
      add(peer.method, peer.equal_means, peer.max_sequence, peer.peak_bytes, PeerFits(answer, peer),
          peer.step_seconds);
    } else if (peer.equal_means) {  // in both settings for the same reason
      rows.push_back({peer.method, "-", "-", "-", "-", "-"});
      impossible[peer.why_not].push_back(peer.method);
    }
  }
  std::string reasons;
  for (const auto& [why_not, methods] : impossible)
    absl::StrAppend(&reasons, "Not possible: ", absl::StrJoin(methods, ", "), ".\nThe reason: ", why_not,
                    "\n");
  return absl::StrCat(
      "\nINSTEAD (modelled from published formulas, not simulated)\n", Table(rows, {2, 3, 5}), reasons,
      "LONGEST: tokens that fit ", answer.plan.degree(), answer.plan.degree() == 1 ? " device" : " devices",
      ". PEAK, STEP: at this job's sequence; where it does not fit, of a device that\n"
      "had the memory. MEANS: as planned, METP's recomputation, tile rows and offload; or none of them.\n");
}

nlohmann::ordered_json OffloadJson(const v1::Plan& plan) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (plan.offload_activations()) list.push_back("activations");
  if (plan.offload_optimizer()) list.push_back("optimizer");
  return list;
}

nlohmann::ordered_json CompareJson(const PlanAnswer& answer) {
  const v1::Prediction& p = answer.prediction;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  list.push_back({{"method", "METP"},
                  {"modelled", false},
                  {"equal_means", true},
                  {"possible", true},
                  {"why_not", ""},
                  {"max_sequence", answer.plan_max_sequence},
                  {"peak_bytes", p.peak_bytes()},
                  {"bytes_by_part", CategoriesJson(p)},
                  {"host_bytes", p.host_peak_bytes()},
                  {"fits", p.fits()},
                  {"step_seconds", p.step_seconds()}});
  for (const PeerEstimate& peer : answer.peers) {
    list.push_back({{"method", peer.method},
                    {"modelled", true},
                    {"equal_means", peer.equal_means},
                    {"possible", peer.possible},
                    {"why_not", peer.why_not},
                    {"max_sequence", peer.max_sequence},
                    {"peak_bytes", peer.peak_bytes},
                    {"bytes_by_part", peer.bytes_by_part},
                    {"host_bytes", peer.host_bytes},
                    {"fits", PeerFits(answer, peer)},
                    {"step_seconds", peer.step_seconds}});
  }
  return list;
}

}  // namespace

std::string PlanText(const PlanAnswer& answer) {
  const v1::Plan& plan = answer.plan;
  const v1::Prediction& p = answer.prediction;
  std::string text = absl::StrCat("Simulated on ", answer.profile.name(), "; nothing was measured.\n");
  if (answer.max_sequence)
    absl::StrAppend(&text, "Longest sequence that fits: ", Grouped(*answer.max_sequence), " tokens.\n");
  absl::StrAppend(&text, plan.degree(), plan.degree() == 1 ? " rank" : " ranks",
                  RingsOf(plan) == 1 ? ", " : " a ring, ", PlanSettings(plan), "; sequence ",
                  Grouped(answer.job.data().sequence_length()), " tokens.\n");
  for (const std::string& note : plan.notes()) absl::StrAppend(&text, note, "\n");
  absl::StrAppend(&text, "\n", MemoryText(p));
  absl::StrAppend(&text, "\nStep ", Duration(p.step_seconds()), ", ",
                  Grouped(static_cast<int64_t>(p.tokens_per_second())), " tokens/s, ",
                  Grouped(static_cast<int64_t>(p.tokens_per_second() / RanksOf(plan))), " a device; MFU ",
                  Percent(p.mfu()), " of ", Scaled(answer.profile.peak_flops_per_second(), "FLOP/s"));
  if (p.exposed_seconds() > 0) {
    absl::StrAppend(&text, "; waiting for communication ", Percent(p.exposed_seconds() / p.step_seconds()),
                    " of the step");
  }
  return absl::StrCat(text, ".\n", HostText(p), PassText(p), OverlapText(answer), CompareText(answer));
}

nlohmann::ordered_json PlanJson(const PlanAnswer& answer) {
  const v1::Plan& plan = answer.plan;
  const v1::Prediction& p = answer.prediction;
  nlohmann::ordered_json json = {
      {"plan",
       {{"degree", plan.degree()},
        {"rings", RingsOf(plan)},
        {"head_groups", plan.head_groups()},
        {"tile_rows", plan.tile_rows()},
        {"recompute", RecomputeName(plan.recompute())},
        {"offload", OffloadJson(plan)},
        {"notes", std::vector<std::string>(plan.notes().begin(), plan.notes().end())}}},
      {"profile", answer.profile.name()},
      {"simulated", true},
      {"sequence_length", answer.job.data().sequence_length()}};
  if (answer.max_sequence) json["max_sequence"] = *answer.max_sequence;
  json["memory"] = {{"peak_bytes", p.peak_bytes()},
                    {"peak_bytes_by_category", CategoriesJson(p)},
                    {"usable_bytes", p.usable_bytes()},
                    {"host_peak_bytes", p.host_peak_bytes()},
                    {"host_usable_bytes", p.host_usable_bytes()},
                    {"fits", p.fits()}};
  json["step_seconds"] = p.step_seconds();
  json["tokens_per_second"] = p.tokens_per_second();
  json["tokens_per_second_per_device"] = p.tokens_per_second() / RanksOf(plan);
  json["mfu"] = p.mfu();
  json["exposed_seconds"] = p.exposed_seconds();
  json["host"] = {{"copy_seconds", p.host().copy_seconds()},
                  {"update_seconds", p.host().update_seconds()},
                  {"exposed_seconds", p.host().exposed_seconds()}};
  json["passes"] = nlohmann::ordered_json::object();
  for (const v1::PassPrediction& pass : p.passes()) {
    json["passes"][pass.pass()] = {{"verdict", pass.verdict()},
                                   {"hop_compute_seconds", pass.hop_compute_seconds()},
                                   {"hop_communication_seconds", pass.hop_communication_seconds()},
                                   {"hides", pass.hides()},
                                   {"compute_seconds", pass.compute_seconds()},
                                   {"communication_seconds", pass.communication_seconds()},
                                   {"exposed_seconds", pass.exposed_seconds()},
                                   {"simulation_hides", pass.simulation_hides()}};
  }
  json["full_overlap"] = {{"holds", p.full_overlap()},
                          {"smallest_sequence", p.smallest_sequence()},
                          {"largest_degree", p.largest_degree()}};
  if (!answer.peers.empty()) json["compare"] = CompareJson(answer);
  return json;
}

}  // namespace metp
