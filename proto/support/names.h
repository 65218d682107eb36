#pragma once

// Names and addresses. What a user may give as one on a command line or over the wire: each ...Error returns what was expected
// where `text` is not that, and nothing where it is, the form that CLI11's check() takes.

#include <string>

namespace metp {

/// Names of workers, shown in tables, labels and messages: 1 to 63 of letters, digits, '-', '.', '_', the first a letter or
/// digit.
inline std::string NameError(const std::string& text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  bool good = !text.empty() && text.size() <= 63 && alphanumeric(text[0]);
  for (char c : text) good = good && (alphanumeric(c) || c == '-' || c == '.' || c == '_');
  return good ? ""
              : "expected a name of 1 to 63 letters, digits, '-', '.' and '_', beginning with a letter or "
                "digit";
}

/// HOST:PORT, the port 0 to 65535.
inline std::string HostPortError(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  const bool good = colon != 0 && digits && std::stoi(port) <= 65535;
  return good ? "" : "found '" + text + "', expected HOST:PORT with a port of at most 65535";
}

/// Where others reach a server that listens at HOST:PORT: `host`, which they call its machine, in the place of every address.
inline std::string AnnouncedAddress(const std::string& listening, const std::string& host) {
  const size_t colon = listening.rfind(':');
  const std::string bound = listening.substr(0, colon);
  if (bound != "0.0.0.0" && bound != "[::]") return listening;
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return (bare_ipv6 ? "[" + host + "]" : host) + listening.substr(colon);
}

}  // namespace metp
