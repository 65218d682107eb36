#include "server/http/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "server/http/html.h"

namespace metp {
namespace {

constexpr double kLeft = 64, kRight = 10, kTop = 12, kBottom = 24;  // margins of a chart with axes
constexpr double kReferenceReach = 2.5;
constexpr int kMostTicks = 64;
constexpr double kLargest = 1e300;  // of an axis: twice it and more is finite, too

/// Where values lie in the drawing.
struct Scale {
  double x0, x1, y0, y1;            // of the data
  double left, right, top, bottom;  // of the drawing
  double X(double x) const {
    return x1 > x0 ? left + (x - x0) / (x1 - x0) * (right - left) : (left + right) / 2;
  }
  double Y(double y) const {  // halves, since a difference may be too large for a double
    return y1 > y0 ? bottom - (y / 2 - y0 / 2) / (y1 / 2 - y0 / 2) * (bottom - top) : bottom;
  }
};

/// Too close for an axis between them: a double has no steps there that add up.
bool Same(double low, double high) { return high - low <= 1e-9 * std::max(std::fabs(low), std::fabs(high)); }

std::string Open(const Chart& chart, const std::string& style) {
  return absl::StrCat("<svg class=\"", style, "\" viewBox=\"0 0 ", chart.width, " ", chart.height,
                      "\" role=\"img\" aria-labelledby=\"", chart.id, "-t ", chart.id, "-d\"><title id=\"",
                      chart.id, "-t\">", Escape(chart.title), "</title><desc id=\"", chart.id, "-d\">",
                      Escape(chart.description), "</desc>\n");
}

std::string Label(double x, double y, const std::string& anchor, const std::string& text,
                  const std::string& style = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>", x, y, anchor,
                         style.empty() ? "" : absl::StrCat(" class=\"", style, "\""), Escape(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>", x1, y1, x2,
                         y2, style);
}

/// "M.. L.." through the finite ones.
std::string Path(const Scale& scale, const std::vector<double>& x, const std::vector<double>& y) {
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!std::isfinite(y[i])) {
      pen_down = false;
      continue;
    }
    absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? "L" : "M", scale.X(x[i]), scale.Y(y[i]));
    pen_down = true;
  }
  return path;
}

/// The area between two curves; where either is not finite there is none.
std::string Between(const Scale& scale, const std::vector<double>& x, const std::vector<double>& low,
                    const std::vector<double>& high) {
  std::string there, back;
  for (size_t i = 0; i < std::min({x.size(), low.size(), high.size()}); ++i) {
    if (!std::isfinite(low[i]) || !std::isfinite(high[i])) continue;
    absl::StrAppendFormat(&there, "%s%.1f %.1f", there.empty() ? "M" : "L", scale.X(x[i]), scale.Y(high[i]));
    back = absl::StrFormat("L%.1f %.1f", scale.X(x[i]), scale.Y(low[i])) + back;
  }
  return there.empty() ? "" : there + back + "Z";
}

std::string Axes(const Chart& chart, const Scale& scale) {
  std::string svg;
  for (const double tick : Ticks(scale.y0, scale.y1, 5, chart.bytes)) {
    if (tick < scale.y0 || tick > scale.y1 * (1 + 1e-9)) continue;
    svg += Line(scale.left, scale.Y(tick), scale.right, scale.Y(tick), "g");
    svg +=
        Label(scale.left - 8, scale.Y(tick) + 4, "end", chart.tick ? chart.tick(tick) : chart.format(tick));
  }
  svg += Line(scale.left, scale.bottom, scale.right, scale.bottom, "axis");
  for (const double tick : Ticks(scale.x0, scale.x1, 6)) {
    if (tick < scale.x0 || tick > scale.x1 || tick != std::floor(tick)) continue;
    const bool last = scale.X(tick) > scale.right - 14;
    svg += Label(last ? scale.right : scale.X(tick), scale.bottom + 17, last ? "end" : "middle",
                 Grouped(static_cast<int64_t>(tick)));
  }
  if (scale.x0 == scale.x1)
    svg += Label(scale.X(scale.x0), scale.bottom + 17, "middle", Grouped(static_cast<int64_t>(scale.x0)));
  svg += Label(scale.left - 8, scale.bottom + 17, "end", "step");
  return svg;
}

/// Narrow upright strips that say the values at their steps.
std::string Hits(const Chart& chart, const Scale& scale, const std::vector<Series>& series) {
  std::string svg;
  const size_t n = chart.steps.size();
  const size_t stride = std::max<size_t>(1, (n + chart.hits - 1) / std::max<size_t>(chart.hits, 1));
  for (size_t i = 0; i < n; i += stride) {
    const double from =
        i == 0 ? scale.left : (scale.X(chart.steps[i - stride]) + scale.X(chart.steps[i])) / 2;
    const double to =
        i + stride >= n ? scale.right : (scale.X(chart.steps[i]) + scale.X(chart.steps[i + stride])) / 2;
    absl::StrAppendFormat(&svg,
                          "<rect class=\"hit\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                          from, scale.top, std::max(to - from, 0.5), scale.bottom - scale.top);
    absl::StrAppend(&svg, "step ", Grouped(static_cast<int64_t>(chart.steps[i])));
    for (auto one = series.rbegin(); one != series.rend(); ++one) {
      if (i >= one->values.size() || !std::isfinite(one->values[i])) continue;
      absl::StrAppend(&svg, "\n", Escape(one->name), " ", Escape(chart.format(one->values[i])));
    }
    svg += "</title></rect>";
  }
  return svg;
}

/// The range of the drawing for values between low and high.
Scale MakeScale(const Chart& chart, double low, double high) {
  if (!(low <= high)) low = 0, high = 1;  // nothing finite
  if (chart.from_zero) low = std::min(low, 0.0);
  if (chart.top.has_value()) high = *chart.top;
  low = std::clamp(low, -kLargest, kLargest), high = std::clamp(high, -kLargest, kLargest);
  if (Same(low, high)) low -= std::fabs(low) * 0.05 + 1e-9, high += std::fabs(high) * 0.05 + 1e-9;
  if (!chart.top.has_value() && !chart.from_zero) {
    const std::vector<double> ticks = Ticks(low, high, 5, chart.bytes);
    low = std::min(low, ticks.front());
  }
  if (!chart.top.has_value()) high = low + (high - low) * 1.06;
  const double first = chart.steps.empty() ? 0 : chart.steps.front();
  const double last = chart.steps.empty() ? 1 : chart.steps.back();
  return {first, last, low, high, kLeft, chart.width - kRight, kTop, chart.height - kBottom};
}

std::string References(const Chart& chart, const Scale& scale) {
  std::string svg;
  for (const Reference& reference : chart.references) {
    if (!(reference.value >= scale.y0 && reference.value <= scale.y1)) continue;
    const double y = scale.Y(reference.value);
    svg += Line(scale.left, y, scale.right, y, "ref");
    svg += Label(scale.right - 2, y < scale.top + 14 ? y + 13 : y - 4, "end", reference.name, "halo");
  }
  return svg;
}

double Largest(const std::vector<double>& values) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

/// What the areas reach together.
double StackTop(const std::vector<Series>& areas) {
  std::vector<double> sums;
  for (const Series& one : areas) {
    sums.resize(std::max(sums.size(), one.values.size()));
    for (size_t i = 0; i < one.values.size(); ++i)
      sums[i] += std::isfinite(one.values[i]) ? one.values[i] : 0;
  }
  return sums.empty() ? 0 : Largest(sums);
}

}  // namespace

std::vector<double> Ticks(double low, double high, int count, bool bytes) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {0};
  if (Same(low, high)) return {low};
  double unit = 1;
  while (bytes && high / unit >= 1024) unit *= 1024;
  const double rough = (high - low) / unit / std::max(count, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power * unit;
  const double first = std::floor(low / step), last = std::ceil(high / step);
  if (!std::isfinite(first) || !std::isfinite(last)) return {low};
  std::vector<double> ticks;
  for (int i = 0; i < kMostTicks && first + i <= last; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

std::string LineChart(const Chart& chart, const std::vector<Series>& series) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Series& one : series) {
    for (const auto* values : {&one.values, &one.lowest, &one.highest}) {
      for (const double value : *values) {
        if (!std::isfinite(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
  }
  for (const Reference& reference : chart.references) {
    if (reference.value <= kReferenceReach * high) high = std::max(high, reference.value);
  }
  const Scale scale = MakeScale(chart, low, high);
  std::string svg = Open(chart, "chart") + Axes(chart, scale) + "\n";
  for (const Series& one : series) {
    const std::string band = Between(scale, chart.steps, one.lowest, one.highest);
    if (!band.empty())
      absl::StrAppend(&svg, "<path class=\"band\" fill=\"var(", one.color, ")\" d=\"", band, "\"/>\n");
  }
  svg += References(chart, scale);
  for (const Series& one : series) {
    absl::StrAppend(&svg, "<path class=\"l\" stroke=\"var(", one.color, ")\" d=\"",
                    Path(scale, chart.steps, one.values), "\"/>\n");
    if (chart.steps.size() == 1 && std::isfinite(one.values[0]))
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"var(%s)\"/>",
                            scale.X(chart.steps[0]), scale.Y(one.values[0]), one.color);
  }
  return svg + Hits(chart, scale, series) + "</svg>\n";
}

bool ShowsReference(const std::vector<Series>& areas, const Reference& reference) {
  return reference.value <= kReferenceReach * StackTop(areas);
}

std::string AreaChart(const Chart& chart, const std::vector<Series>& series) {
  double high = StackTop(series);
  for (const Reference& reference : chart.references) {
    if (ShowsReference(series, reference)) high = std::max(high, reference.value);
  }
  Chart wide = chart;
  std::vector<Series> areas = series;
  if (chart.steps.size() == 1) {  // as wide as the chart
    wide.steps = {chart.steps[0] - 0.5, chart.steps[0] + 0.5};
    for (Series& one : areas) one.values.resize(2, one.values.empty() ? 0 : one.values[0]);
  }
  const Scale scale = MakeScale(wide, 0, high);
  std::string svg = Open(chart, "chart") + Axes(chart, scale) + "\n";
  std::vector<double> below(wide.steps.size(), 0.0);
  for (const Series& one : areas) {
    std::vector<double> above = below;
    for (size_t i = 0; i < std::min(above.size(), one.values.size()); ++i)
      above[i] += std::isfinite(one.values[i]) ? one.values[i] : 0;
    absl::StrAppend(&svg, "<path class=\"area\" fill=\"var(", one.color, ")\" d=\"",
                    Between(scale, wide.steps, below, above), "\"><title>", Escape(one.name),
                    "</title></path>\n");
    below = std::move(above);
  }
  return svg + References(chart, scale) + Hits(chart, scale, series) + "</svg>\n";
}

std::string SmallChart(const Chart& chart, const Series& series) {
  Scale scale = MakeScale(chart, 0, Largest(series.values));
  scale.left = 2, scale.right = chart.width - 2.0, scale.top = 4, scale.bottom = chart.height - 4.0;
  std::string svg = Open(chart, "chart");
  for (const double part : {0.0, 0.5, 1.0})
    svg += Line(scale.left, scale.Y(part * scale.y1), scale.right, scale.Y(part * scale.y1),
                part == 0 ? "axis" : "g");
  const std::vector<double> zero(series.values.size(), 0.0);
  absl::StrAppend(&svg, "<path class=\"band\" fill=\"var(", series.color, ")\" d=\"",
                  Between(scale, chart.steps, zero, series.values), "\"/><path class=\"l\" stroke=\"var(",
                  series.color, ")\" d=\"", Path(scale, chart.steps, series.values), "\"/>");
  return svg + Hits(chart, scale, {series}) + "</svg>\n";
}

std::string Sparkline(const std::vector<double>& values, const std::string& title) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  std::vector<double> x;
  for (const double value : values) {
    x.push_back(static_cast<double>(x.size()));
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (values.size() < 2 || !(low <= high)) return "";
  const Scale scale = {0, x.back(), low, high, 2, 84, 3, 19};
  return absl::StrCat("<svg class=\"spark\" viewBox=\"0 0 86 22\" role=\"img\"><title>", Escape(title),
                      "</title><path class=\"l\" stroke=\"var(--s0)\" d=\"", Path(scale, x, values),
                      "\"/></svg>");
}

std::string BarChart(const Chart& chart, const std::vector<BarPair>& rows) {
  constexpr double kNames = 150, kValues = 92, kRow = 34;
  double high = 0;
  for (const BarPair& row : rows) {
    for (const double value : {row.planned.value_or(0), row.measured.value_or(0)})
      high = std::max(high, std::isfinite(value) ? value : 0);
  }
  Chart drawn = chart;
  drawn.height = static_cast<int>(kRow * static_cast<double>(rows.size())) + 4;
  const double room = chart.width - kNames - kValues;
  std::string svg = Open(drawn, "chart");
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = 4 + kRow * static_cast<double>(i);
    svg += Label(kNames - 10, y + 17, "end", rows[i].name, "v");
    const auto bar = [&](std::optional<double> value, double at, const std::string& style) {
      if (value.has_value() && !std::isfinite(*value)) value.reset();
      const double width = high > 0 && value.has_value() ? std::max(room * *value / high, 1.5) : 0;
      if (value.has_value()) {
        absl::StrAppendFormat(&svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"10\" rx=\"2\" %s/>",
                              kNames, at, width, style);
      }
      svg += Label(kNames + width + 6, at + 9, "start", value.has_value() ? chart.format(*value) : "-");
    };
    bar(rows[i].planned, y, "class=\"hollow\"");
    bar(rows[i].measured, y + 13, absl::StrCat("fill=\"var(", rows[i].color, ")\""));
    svg += "\n";
  }
  return svg + "</svg>\n";
}

}  // namespace metp
