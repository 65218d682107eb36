// A rank that does what its script says: speaks the rank protocol, trains nothing. The script is the job's
// first data.source, a text file with one act a line, "WHO: ACT", where WHO is a rank or `all`; a rank does
// its acts in order and then reports success.
//
//   print TEXT          one line of output            steps N        N step reports
//   meet                rendezvous with all ranks     touch FILE     makes a file
//   await FILE          waits until the file is there hang           waits for ever
//   ignore-term         SIGTERM, SIGINT do nothing    exit CODE      ends without a result
//   dump                SIGQUIT prints a line         env NAME       prints that variable
//   kill SIGNAL         ends by that signal           fail CODE TEXT reports that status and ends
//   flood N             N lines of output             garbage        bytes that are no message
//   trace               from now on a trace order is answered, with a line of output and as many further steps

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/support/await_file.h"
#include "worker/rank/rendezvous_link.h"

namespace metp {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);

class FakeRank {
 public:
  explicit FakeRank(int fd)
      : link_(
            fd, [](const absl::Status&) { _exit(1); },
            [this](const v1::TraceOrder& order) {
              if (traces_) Trace(order.steps());
            }) {}

  int Run() {
    v1::FromRank hello;
    hello.mutable_hello()->set_pid(getpid());
    Send(hello);
    const absl::StatusOr<v1::RankStart> start = link_.AwaitStart(kTimeout);
    if (!start.ok()) return 1;
    start_ = *start;
    v1::FromRank started;
    started.set_started("rank " + std::to_string(start_.rank()) + " of " +
                        std::to_string(start_.plan().degree()) + ", scripted, " +
                        std::to_string(start_.threads()) + " threads at " + start_.address());
    Send(started);
    std::ifstream script(start_.job().data().source(0));
    std::string line;
    while (std::getline(script, line)) {
      std::istringstream words(line);
      std::string who, act;
      words >> who >> act;
      if (who == "all:" || who == std::to_string(start_.rank()) + ":") Act(act, words);
    }
    End(0, "");
  }

 private:
  void Send(const v1::FromRank& message) {
    if (!link_.Send(message).ok()) _exit(1);
  }
  [[noreturn]] void End(int code, const std::string& message) {
    v1::FromRank last;
    last.mutable_result()->set_code(code);
    last.mutable_result()->set_message(message);
    Send(last);
    std::cout << std::flush;
    _exit(code == 0 ? 0 : 1);
  }

  void Act(const std::string& act, std::istringstream& words) {
    std::string text;
    std::getline(words >> std::ws, text);
    if (act == "print") std::cout << text << std::endl;
    if (act == "env") {
      const char* value = std::getenv(text.c_str());
      std::cout << (value == nullptr ? "not set" : value) << std::endl;
    }
    if (act == "flood") {
      for (int i = 0; i < std::atoi(text.c_str()); ++i) std::cout << "line " << i << "\n";
      std::cout << std::flush;
    }
    if (act == "steps") {
      for (int i = 0; i < std::atoi(text.c_str()); ++i) Step();
    }
    if (act == "meet") Meet();
    if (act == "trace") traces_ = true;
    if (act == "touch") std::ofstream(text).flush();
    if (act == "await") AwaitFile(text);
    if (act == "hang") {
      while (true) pause();
    }
    if (act == "ignore-term") {
      std::signal(SIGTERM, SIG_IGN);
      std::signal(SIGINT, SIG_IGN);
    }
    if (act == "dump") {
      std::signal(SIGQUIT, [](int) {
        const char line[] = "here I am\n";
        const ssize_t n = write(STDOUT_FILENO, line, sizeof line - 1);
        static_cast<void>(n);
      });
    }
    if (act == "exit") _exit(std::atoi(text.c_str()));
    if (act == "kill") std::raise(std::atoi(text.c_str()));
    if (act == "fail") {
      const size_t space = text.find(' ');
      End(std::atoi(text.c_str()), space == std::string::npos ? "" : text.substr(space + 1));
    }
    if (act == "garbage") {
      const char bytes[] = "\xFF\xFF\xFF\xFFgarbage";
      const ssize_t n = write(3, bytes, sizeof bytes);
      static_cast<void>(n);
    }
  }

  /// Numbers that a test can know beforehand: loss 1/step, one MiB of weights and half of ring per rank
  /// number + 1.
  void Step() {
    v1::FromRank message;
    v1::StepReport& step = *message.mutable_step();
    step.set_rank(start_.rank());
    step.set_step(++step_);
    step.set_loss(1.0 / step_);
    step.set_grad_norm(2.0 / step_);
    step.set_learning_rate(start_.job().train().learning_rate());
    step.set_step_seconds(0.25);
    step.set_tokens(1000);
    const int64_t weights = (start_.rank() + 1) * int64_t{1 << 20}, ring = weights / 2;
    (*step.mutable_current_bytes())["weights"] = weights;
    (*step.mutable_peak_bytes_by_category())["weights"] = weights;
    (*step.mutable_peak_bytes_by_category())["ring"] = ring;
    step.set_peak_bytes(weights + ring);
    step.set_sent_bytes(int64_t{4096} * step_);
    step.set_model_flops(1e9);
    v1::PassTimes& pass = (*step.mutable_passes())["mlp.forward"];
    pass.set_compute_seconds(0.2);
    pass.set_communication_seconds(0.1);
    pass.set_exposed_seconds(0.025);
    pass.set_skew_seconds(0.01);
    Send(message);
  }

  /// On the link's thread.
  void Trace(int steps) {
    std::cout << (steps > 0 ? "traces" : "traces no more") << std::endl;
    for (int i = 0; i < steps; ++i) {
      v1::FromRank message;
      message.mutable_trace()->set_step(++traced_);
      v1::TraceSpan& span = *message.mutable_trace()->add_spans();
      span.set_track("step");
      span.set_name("step " + std::to_string(traced_));
      span.set_start(1.8e9 + traced_);
      span.set_seconds(0.5);
      message.mutable_trace()->set_last(true);
      Send(message);
    }
  }

  void Meet() {
    ChannelRendezvous rendezvous(link_);
    const std::string mine = std::to_string(start_.rank());
    if (!rendezvous.Put("rank/" + mine, "address of " + mine).ok()) End(14, "could not put");
    for (int other = 0; other < start_.plan().degree(); ++other) {
      const absl::StatusOr<std::string> value = rendezvous.Get("rank/" + std::to_string(other), kTimeout);
      if (!value.ok() || *value != "address of " + std::to_string(other)) End(14, "rendezvous failed");
    }
  }

  v1::RankStart start_;
  int step_ = 0;
  std::atomic<bool> traces_ = false;
  int traced_ = 0;  // the link's thread's
  RankLink link_;
};

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  // serve --fd N
  return argc == 4 ? metp::FakeRank(std::atoi(argv[3])).Run() : 2;
}
