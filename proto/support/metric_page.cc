#include "proto/support/metric_page.h"

#include "prometheus/text_serializer.h"

namespace metp {

prometheus::ClientMetric& MetricPage::Add(const std::string& name, const std::string& help,
                                          prometheus::MetricType type, const Labels& labels) {
  const auto [at, inserted] = index_.emplace(name, families_.size());
  if (inserted) {
    prometheus::MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    families_.push_back(std::move(family));
  }
  std::vector<prometheus::ClientMetric>& metrics = families_[at->second].metric;
  metrics.emplace_back();
  for (const auto& [key, value] : labels) metrics.back().label.push_back({key, value});
  return metrics.back();
}

void MetricPage::Gauge(const std::string& name, const std::string& help, const Labels& labels, double value) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void MetricPage::Counter(const std::string& name, const std::string& help, const Labels& labels,
                         double value) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
}

std::string MetricPage::Text() const { return prometheus::TextSerializer().Serialize(families_); }

}  // namespace metp
