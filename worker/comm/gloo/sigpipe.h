#pragma once

// Gloo writes to its sockets in a way that raises SIGPIPE when the peer is gone, on whichever thread writes.
// A program that uses the library should not have to know: threads started while a SigpipeBlock lives inherit
// its blocked signal and get an error code instead. One block around the making of a communicator covers them
// all.

#include <csignal>
#include <ctime>

namespace metp {

class SigpipeBlock {
 public:
  SigpipeBlock() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeBlock() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec now = {};
    while (sigtimedwait(&sigpipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  sigset_t sigpipe_, before_;
};

}  // namespace metp
