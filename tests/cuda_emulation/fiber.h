#pragma once

// Fibers: stacks that a host thread changes between without a system call (Boost.Context). The sanitizers are told: the
// address sanitizer of each change; for the thread sanitizer all fibers are one thread, which is what they are, and its
// shadow call stack is balanced by the end of a block.

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>
#include <vector>

#include "tests/cuda_emulation/sanitizers.h"

namespace metp::emulation {

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;  // where it goes on; null: at its beginning
  char* stack = nullptr;                                 // the lowest address
  size_t bytes = 0;
  void* fake_stack = nullptr;     // the address sanitizer's
  const void* outside = nullptr;  // of the host thread's own stack, as the sanitizer sees it
  size_t outside_bytes = 0;
};

/// Goes to `to` and comes back when somebody goes to `from`.
void ChangeFiber(Fiber& from, Fiber& to);
/// First thing on a new stack.
void BeginFiber(boost::context::detail::transfer_t from);

/// The stacks of one host thread.
class FiberPool {
 public:
  using Main = void (*)(boost::context::detail::transfer_t);
  explicit FiberPool(Main main) : main_(main) {}
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  Fiber* Take();
  /// It waits in its main function for the next to do.
  void Give(Fiber* fiber) { idle_.push_back(fiber); }
  /// What it was doing is given up; it begins anew.
  void GiveUp(Fiber* fiber);

 private:
  void Begin(Fiber& fiber) const;
  void AddStacks();

  const Main main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<char*> mappings_;
};

}  // namespace metp::emulation
