#include "proto/support/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <vector>

#include "proto/support/names.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

/// A connection that says nothing.
int Connect(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

auto OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

TEST(HttpServer, AnswersBesideConnectionsThatSayNothingAndDropsThose) {
  const auto server = HttpServer::Start(
      "127.0.0.1:0", {{"/healthz", [](const HttpRequest&) { return HttpPage{.body = "ok\n"}; }}});
  ASSERT_THAT(server, IsOk());
  const auto before = OpenDescriptors();
  std::vector<int> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(Connect((*server)->address()));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (OpenDescriptors() < before + 16 && std::chrono::steady_clock::now() < patience) usleep(1000);
  ASSERT_GE(OpenDescriptors(), before + 16);  // both ends: the server has taken them
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(HttpGet("http://" + (*server)->address() + "/healthz").body, "ok\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  pollfd dropped = {.fd = silent[0], .events = POLLIN | POLLRDHUP, .revents = 0};
  EXPECT_EQ(poll(&dropped, 1, 15'000), 1);  // and not after half a minute
  for (const int fd : silent) close(fd);
}

TEST(HttpServer, SaysWhatIsNotThere) {
  const auto server = HttpServer::Start("127.0.0.1:0", {});
  ASSERT_THAT(server, IsOk());
  const int fd = Connect((*server)->address());
  const std::string request = "GET /nothing HTTP/1.1\r\nHost: test\r\n\r\n";
  ASSERT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer(24, '\0');
  EXPECT_EQ(recv(fd, answer.data(), answer.size(), MSG_WAITALL), static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(answer, "HTTP/1.1 404 Not Found\r\n");
  close(fd);
}

TEST(HttpServer, IsAnnouncedWhereOthersReachIt) {
  EXPECT_EQ(AnnouncedAddress("0.0.0.0:7072", "10.0.0.5"), "10.0.0.5:7072");
  EXPECT_EQ(AnnouncedAddress("[::]:7072", "gpu-1.example"), "gpu-1.example:7072");
  EXPECT_EQ(AnnouncedAddress("[::]:7072", "fd00::1"), "[fd00::1]:7072");
  EXPECT_EQ(AnnouncedAddress("0.0.0.0:7072", "[fd00::1]"), "[fd00::1]:7072");
  EXPECT_EQ(AnnouncedAddress("127.0.0.1:7072", "10.0.0.5"), "127.0.0.1:7072");
  EXPECT_EQ(AnnouncedAddress("10.0.0.6:7072", "10.0.0.5"), "10.0.0.6:7072");
}

}  // namespace
}  // namespace metp
