#pragma once

// The small HTTP server of the two daemons: a handful of GET pages made on demand (/metrics, /healthz, /jobs/NAME).
// Handlers run on the server's own threads and must be thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace metp {

struct HttpRequest {
  std::string path;    // decoded, without what follows '?'
  std::string query;   // that, as it came
  std::string accept;  // header
};

struct HttpPage {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::map<std::string, std::string> headers = {};  // further ones
};

class HttpServer {
 public:
  using Handler = std::function<HttpPage(const HttpRequest&)>;

  /// `listen`: HOST:PORT, port 0 for a free one. `pages`: by exact path, or, if that ends with "/" and is not "/" alone, all
  /// paths below it; anything else is 404.
  /// InvalidArgument: not HOST:PORT. Unavailable: the port is taken or the host is not this machine's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           std::map<std::string, Handler> pages);
  ~HttpServer();

  /// HOST:PORT with the actual port.
  const std::string& address() const { return address_; }

 private:
  class Impl;
  HttpServer();
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace metp
