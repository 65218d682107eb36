#pragma once

// One HTTP GET over loopback.

#include <string>

namespace metp {

struct HttpAnswer {
  int code = 0;  // 0: no connection
  std::string body;
};

/// `url`: "http://HOST:PORT/PATH".
HttpAnswer HttpGet(const std::string& url);

}  // namespace metp
