#pragma once

// A curve drawn with characters. Pure.

#include <string>
#include <vector>

namespace metp {

struct CurvePoint {
  double x = 0, y = 0;
};

struct CurveStyle {
  int width = 72;    // characters, labels of the y axis included
  int height = 12;   // lines of the plot, x axis not included
  bool utf8 = true;  // braille dots; otherwise '*'
  std::string x_label = "step", y_label = "loss";
};

/// `points` by ascending x. Points that are not finite are left out and said so. Empty if none is finite.
std::string DrawCurve(const std::vector<CurvePoint>& points, const CurveStyle& style);

}  // namespace metp
