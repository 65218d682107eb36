#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace metp {

HttpAnswer HttpGet(const std::string& url) {
  const size_t host = url.find("//") + 2, colon = url.find(':', host), slash = url.find('/', colon);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(url.c_str() + colon + 1)));
  inet_pton(AF_INET, url.substr(host, colon - host).c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  HttpAnswer answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string path = slash == std::string::npos ? "/" : url.substr(slash);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    std::string all;
    char bytes[65536];
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) all.append(bytes, n);
    }
    const size_t body = all.find("\r\n\r\n");
    if (all.size() > 12 && body != std::string::npos) {
      answer.code = std::atoi(all.c_str() + 9);
      answer.body = all.substr(body + 4);
    }
  }
  close(fd);
  return answer;
}

}  // namespace metp
