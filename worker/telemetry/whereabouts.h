#pragma once

// Where a rank's training is, for whoever asks while it hangs. Written by the rank's compute thread, read by any.

#include <atomic>
#include <cstdint>
#include <string>

namespace metp {

class Whereabouts {
 public:
  // Strings must live for ever: literals.
  void Enter(int step) { step_ = step, pass_ = nullptr, hop_ = 0; }
  /// A pass, or what is done instead: "saving a checkpoint".
  void Enter(const char* pass) { pass_ = pass; }
  /// Waits for hop `hop` since the ring was made.
  void AwaitHop(uint64_t hop) { hop_ = hop; }
  void HopDone() { hop_ = 0; }
  /// "step 12, attention.forward, waiting for its neighbours (hop 37)".
  std::string Describe() const {
    const char* pass = pass_;
    const uint64_t hop = hop_;
    std::string text = "step " + std::to_string(step_.load());
    if (pass != nullptr) text += std::string(", ") + pass;
    if (hop != 0) text += ", waiting for its neighbours (hop " + std::to_string(hop) + ")";
    return text;
  }

 private:
  std::atomic<int> step_ = 0;
  std::atomic<const char*> pass_ = nullptr;
  std::atomic<uint64_t> hop_ = 0;
};

}  // namespace metp
