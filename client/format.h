#pragma once

// Tables for people. Pure.

#include <string>
#include <vector>

#include "proto/support/figures.h"  // what their cells hold

namespace metp {

/// Columns as wide as their widest cell (counted in characters), two spaces between; the first row is the
/// heading. Columns named in `right` (by index) are aligned to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right = {});

}  // namespace metp
