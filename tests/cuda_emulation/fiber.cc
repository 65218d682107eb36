#include "tests/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace metp::emulation {
namespace {

using boost::context::detail::transfer_t;

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kStacksAtOnce = 32;  // one mapping: a warp's
// Stacks at one distance would have their ends in the same few lines of every cache; so they end at different places.
constexpr size_t kStagger = 17 * 64;
constexpr size_t kStaggers = 29;

/// On the stack that was come to: `from.data` is the fiber that was left.
void Arrive([[maybe_unused]] Fiber* arrived, transfer_t from) {
  Fiber* const left = static_cast<Fiber*>(from.data);
  left->context = from.fctx;
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(arrived == nullptr ? nullptr : arrived->fake_stack, &bottom, &bytes);
  if (left->stack == nullptr) {  // the host thread's own stack
    left->outside = bottom;
    left->outside_bytes = bytes;
  }
#endif
}

}  // namespace

void ChangeFiber(Fiber& from, Fiber& to) {
#ifdef __SANITIZE_ADDRESS__
  const void* const bottom = to.stack == nullptr ? to.outside : to.stack;
  __sanitizer_start_switch_fiber(&from.fake_stack, bottom, to.stack == nullptr ? to.outside_bytes : to.bytes);
#endif
  Arrive(&from, boost::context::detail::jump_fcontext(to.context, &from));
}

void BeginFiber(transfer_t from) { Arrive(nullptr, from); }

FiberPool::~FiberPool() {
  for (char* mapping : mappings_) munmap(mapping, kStacksAtOnce * (kGuardBytes + kStackBytes));
}

Fiber* FiberPool::Take() {
  if (idle_.empty()) AddStacks();
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void FiberPool::GiveUp(Fiber* fiber) {
  Unpoison(fiber->stack, fiber->bytes);
  Begin(*fiber);
  idle_.push_back(fiber);
}

void FiberPool::Begin(Fiber& fiber) const {
  fiber.fake_stack = nullptr;
  fiber.context = boost::context::detail::make_fcontext(fiber.stack + fiber.bytes, fiber.bytes, main_);
}

void FiberPool::AddStacks() {
  constexpr size_t kEach = kGuardBytes + kStackBytes;
  void* const mapped = mmap(nullptr, kStacksAtOnce * kEach, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) {
    std::fprintf(stderr, "cuda emulation: no memory for stacks\n");
    std::abort();
  }
  char* const first = static_cast<char*>(mapped);
  mappings_.push_back(first);
  for (size_t i = 0; i < kStacksAtOnce; ++i) {
    mprotect(first + i * kEach, kGuardBytes, PROT_NONE);
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = first + i * kEach + kGuardBytes;
    fiber->bytes = kStackBytes - fibers_.size() % kStaggers * kStagger;
    Begin(*fiber);
    fibers_.push_back(std::move(fiber));
  }
  // Taken from the back: the lowest lane first.
  for (size_t i = 0; i < kStacksAtOnce; ++i) idle_.push_back(fibers_[fibers_.size() - 1 - i].get());
}

}  // namespace metp::emulation
