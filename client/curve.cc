#include "client/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/format.h"

namespace metp {
namespace {

/// A field of dots, several to a character.
class Canvas {
 public:
  Canvas(int columns, int rows, bool utf8)
      : columns_(columns), rows_(rows), utf8_(utf8), cells_(static_cast<size_t>(columns) * rows) {}

  int width() const { return columns_ * (utf8_ ? 2 : 1); }  // dots
  int height() const { return rows_ * (utf8_ ? 4 : 1); }

  /// x to the right, y upwards.
  void Set(int x, int y) {
    const int down = height() - 1 - y;
    if (x < 0 || x >= width() || down < 0 || down >= height()) return;
    if (!utf8_) {
      cells_[static_cast<size_t>(down) * columns_ + x] = 1;
      return;
    }
    // Unicode numbers the dots of a braille cell down the left column, then the right one, then the last row.
    static constexpr uint8_t kDots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[static_cast<size_t>(down / 4) * columns_ + x / 2] |= kDots[down % 4][x % 2];
  }
  void Line(int x, int from, int to) {
    for (int y = std::min(from, to); y <= std::max(from, to); ++y) Set(x, y);
  }
  std::string Row(int row) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const uint8_t cell = cells_[static_cast<size_t>(row) * columns_ + column];
      if (cell == 0) {
        out += ' ';
      } else if (!utf8_) {
        out += '*';
      } else {
        out += '\xE2';
        out += static_cast<char>(0xA0 | (cell >> 6));
        out += static_cast<char>(0x80 | (cell & 0x3F));
      }
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  }

 private:
  const int columns_, rows_;
  const bool utf8_;
  std::vector<uint8_t> cells_;
};

std::string PadLeft(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

/// Mean height of the points that fall on each column of dots; NaN where none does.
std::vector<double> ByColumn(const std::vector<CurvePoint>& points, int columns) {
  std::vector<double> sum(columns), count(columns);
  const double x0 = points.front().x, span = points.back().x - x0;
  for (const CurvePoint& point : points) {
    const int column = span > 0 ? static_cast<int>(std::lround((point.x - x0) / span * (columns - 1))) : 0;
    sum[column] += point.y;
    count[column] += 1;
  }
  for (int i = 0; i < columns; ++i) sum[i] = count[i] > 0 ? sum[i] / count[i] : NAN;
  return sum;
}

}  // namespace

std::string DrawCurve(const std::vector<CurvePoint>& all, const CurveStyle& style) {
  std::vector<CurvePoint> points;
  std::copy_if(all.begin(), all.end(), std::back_inserter(points),
               [](const CurvePoint& point) { return std::isfinite(point.y); });
  if (points.empty()) return "";
  const auto [low, high] = std::minmax_element(
      points.begin(), points.end(), [](const CurvePoint& a, const CurvePoint& b) { return a.y < b.y; });
  const double bottom = low->y, top = high->y > low->y ? high->y : low->y + 1;

  const std::string labels[] = {Short(high->y), Short((bottom + top) / 2), Short(bottom)};
  const size_t margin = std::max({labels[0].size(), labels[1].size(), labels[2].size()});
  Canvas canvas(std::max(10, style.width - static_cast<int>(margin) - 2), std::max(3, style.height),
                style.utf8);

  const std::vector<double> heights = ByColumn(points, canvas.width());
  const auto dot = [&](double y) {
    return static_cast<int>(std::lround((y - bottom) / (top - bottom) * (canvas.height() - 1)));
  };
  int previous = -1;  // last column that has points
  for (int x = 0; x < canvas.width(); ++x) {
    if (std::isnan(heights[x])) continue;
    if (previous < 0) {
      canvas.Set(x, dot(heights[x]));
    } else {
      for (int between = previous + 1; between <= x; ++between) {
        const double step = (heights[x] - heights[previous]) / (x - previous);
        canvas.Line(between, dot(heights[previous] + step * (between - 1 - previous)),
                    dot(heights[previous] + step * (between - previous)));
      }
    }
    previous = x;
  }

  const int rows = std::max(3, style.height);
  std::string out = absl::StrCat(style.y_label, "\n");
  for (int row = 0; row < rows; ++row) {
    const std::string label = row == 0          ? labels[0]
                              : row == rows / 2 ? labels[1]
                              : row == rows - 1 ? labels[2]
                                                : "";
    absl::StrAppend(&out, PadLeft(label, margin), style.utf8 ? " \xE2\x94\x82" : " |", canvas.Row(row), "\n");
  }
  const int columns = canvas.width() / (style.utf8 ? 2 : 1);
  std::string axis;
  for (int i = 0; i < columns; ++i) axis += style.utf8 ? "\xE2\x94\x80" : "-";
  absl::StrAppend(&out, std::string(margin + 1, ' '), style.utf8 ? "\xE2\x94\x94" : "+", axis, "\n");
  const std::string first = absl::StrCat(points.front().x), last = absl::StrCat(points.back().x);
  const int gap = columns - static_cast<int>(first.size() + last.size());
  const std::string middle = style.x_label;
  const int before = std::max(1, (gap - static_cast<int>(middle.size())) / 2);
  const int after = std::max(1, gap - before - static_cast<int>(middle.size()));
  absl::StrAppend(&out, std::string(margin + 2, ' '), first, std::string(before, ' '), middle,
                  std::string(after, ' '), last, "\n");
  if (points.size() < all.size()) {
    absl::StrAppend(&out, all.size() - points.size(), " of ", all.size(),
                    " points are not finite and not drawn\n");
  }
  return out;
}

}  // namespace metp
