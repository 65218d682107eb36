#include "client/format.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/support/names.h"

namespace metp {
namespace {

/// Characters of UTF-8 text: bytes that do not continue one.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - Width(row[i]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
      absl::StrAppend(&line, i == 0 ? "" : "  ", to_right ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string OpenableUrl(const std::string& url, const std::string& server) {
  const std::string scheme = "http://";
  if (!url.starts_with(scheme)) return url;
  return scheme + AnnouncedAddress(url.substr(scheme.size()), server.substr(0, server.rfind(':')));
}

}  // namespace metp
