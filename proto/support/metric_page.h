#pragma once

// One scrape of /metrics, built from the present state: families in order of first mention, samples as given.
// State that is gone is simply not mentioned, so no series outlives what it describes. Not thread-safe; one
// page per scrape.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace metp {

class MetricPage {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  void Gauge(const std::string& name, const std::string& help, const Labels& labels, double value);
  /// `name` ends in _total; `value` only grows while its labels live.
  void Counter(const std::string& name, const std::string& help, const Labels& labels, double value);
  /// Prometheus text format, version 0.0.4.
  std::string Text() const;

  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

 private:
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help, prometheus::MetricType type,
                                const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t> index_;
};

}  // namespace metp
