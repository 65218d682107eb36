// One rank of a Gloo ring as a process of its own: moves large messages round and round until the ring ends,
// and then tells why and when (nanoseconds of the steady clock, which is one for the whole machine). Started
// by gloo_processes_test.cc.

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/rank/rendezvous_link.h"

namespace metp {
namespace {

constexpr int64_t kBytes = 128 << 20;

void Tell(RankLink& link, const std::string& text) {
  v1::FromRank message;
  message.set_started(text);
  if (!link.Send(message).ok()) _exit(3);
}

int Main(int fd) {
  RankLink link(fd, [](const absl::Status&) { _exit(2); });
  const auto start = link.AwaitStart(std::chrono::seconds(60));
  if (!start.ok()) return 4;
  ChannelRendezvous rendezvous(link);
  auto comm = MakeGlooCommunicator(start->rank(), start->plan().degree(), start->address(), rendezvous,
                                   {std::chrono::seconds(60)});
  absl::Status status = comm.status();
  std::vector<char> out(kBytes, 1), in(kBytes);
  const auto row = [](std::vector<char>& v) {
    const int64_t n = kBytes / sizeof(float);
    return Matrix{v.data(), 1, n, n, DType::kF32};
  };
  for (int hop = 1; status.ok(); ++hop) {
    const HopId id = (*comm)->Post({{row(out)}, {row(in)}}, Event());
    Tell(link, "posted " + std::to_string(hop));
    status = (*comm)->Await(id);
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  v1::FromRank message;
  message.mutable_result()->set_code(static_cast<int>(status.code()));
  message.mutable_result()->set_message(std::string(status.message()));
  if (!link.Send(message).ok()) return 5;
  Tell(link, std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  return 0;
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) { return metp::Main(std::atoi(argv[argc - 1])); }
