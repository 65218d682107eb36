#pragma once

// Tables for people. Pure.

#include <string>
#include <vector>

#include "proto/support/figures.h"  // what their cells hold

namespace metp {

/// Columns as wide as their widest cell (counted in characters), two spaces between; the first row is the
/// heading. Columns named in `right` (by index) are aligned to the right.
std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right = {});

/// `url`, http://HOST:PORT, as somebody who reaches its server at `server`, HOST:PORT, can open it: a host that stands for
/// all of a machine's addresses (0.0.0.0, [::]) becomes the server's.
std::string OpenableUrl(const std::string& url, const std::string& server);

}  // namespace metp
