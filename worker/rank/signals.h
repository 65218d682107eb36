#pragma once

// The signals that a rank answers, on a thread of their own:
//   SIGTERM   leave: end the step, write a checkpoint, exit. Before the first step there is nothing to end.
//   SIGQUIT   say where you are, and go on
//   SIGINT    end at once, but tidy up

#include <functional>
#include <thread>

#include "worker/rank/descriptor.h"

namespace metp {

/// In the calling thread, and so in every thread that it starts later: before any. They wait for a SignalThread.
void BlockRankSignals();

/// Ends this process as if it had never handled the signal.
void DieOf(int signal);

class SignalThread {
 public:
  /// Blocks them too.
  SignalThread(std::function<void()> on_term, std::function<void()> on_quit, std::function<void()> on_int);
  ~SignalThread();

 private:
  void Run();

  const std::function<void()> on_term_, on_quit_, on_int_;
  Descriptor signals_, stop_;
  std::thread thread_;
};

}  // namespace metp
