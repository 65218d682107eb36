#pragma once

// Charts as inline SVG, drawn here so that a page needs no script. Colours are names of the style sheet's custom properties
// ("--s0"). Every chart has a title and a description, and the figures under the pointer as the browser's own hint. Pure.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace metp {

struct Series {
  std::string name, color;
  std::vector<double> values = {};                // one for each of the chart's steps; NaN: none
  std::vector<double> lowest = {}, highest = {};  // between what they lie; empty: not drawn
};

/// A value that the others are to be compared with.
struct Reference {
  std::string name;
  double value = 0;
};

struct Chart {
  std::string id;                       // unique in its page
  std::string title, description = {};  // plain text
  std::vector<double> steps = {};       // ascending
  std::function<std::string(double)> format;
  std::function<std::string(double)> tick = {};  // of the axis' labels; otherwise format
  bool bytes = false;                            // the axis is marked in powers of two
  bool from_zero = true;                         // the axis begins there; otherwise near the smallest value
  std::optional<double> top = {};                // of the axis; otherwise near the largest value
  int width = 620, height = 230;
  size_t hits = 120;  // places that answer the pointer, at most
  std::vector<Reference> references = {};
};

/// Lines over steps, with bands where a series has lowest and highest values. Not finite: a gap.
std::string LineChart(const Chart& chart, const std::vector<Series>& series);
/// Areas upon each other, the first at the bottom. References further up than 2.5 times the data do not stretch the axis: they
/// are left to the legend.
std::string AreaChart(const Chart& chart, const std::vector<Series>& series);
/// Whether that drew this reference.
bool ShowsReference(const std::vector<Series>& areas, const Reference& reference);
/// A line without axes, for small multiples: `top` at the upper edge, zero at the lower one.
std::string SmallChart(const Chart& chart, const Series& series);
/// A line as large as a word; empty for less than two values.
std::string Sparkline(const std::vector<double>& values, const std::string& title);

struct BarPair {
  std::string name;
  std::optional<double> planned, measured;
  std::string color = "--run";
};
/// Two bars for each row, the planned one hollow.
std::string BarChart(const Chart& chart, const std::vector<BarPair>& rows);

/// Round numbers that cover low to high, some `count` of them, 64 at most; only `low` where they are as good as the same.
/// `bytes`: round in the unit that Bytes() would use.
std::vector<double> Ticks(double low, double high, int count, bool bytes = false);

}  // namespace metp
